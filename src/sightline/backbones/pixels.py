"""Images on their way to the vision tower: what of them the host hands over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image
from torch import Tensor

Grid = tuple[int, int, int]
"""Tiles of an image, and rows and columns of patches in each."""


@dataclass(frozen=True)
class Pixels:
    """An image on the host, as far as it is prepared there for the vision tower."""

    data: Tensor
    """(H, W, 4) uint8, the image's bytes, if the model lives on a GPU, which does the rest; else pixel values."""
    grid: Grid
    """What the tower will see: tiles, and rows and columns of patches in each."""
    size: tuple[int, int]
    """(width, height) of the image before preprocessing."""
    preprocess_ms: float


def stored_pixels(image: Image.Image) -> np.ndarray:
    """(H, W, 4) bytes of an RGB image where Pillow has them, the fourth unused; (H, W, 3) copied if it cannot share.

    Copying drops every fourth byte, pixel by pixel, which takes longer than all else that the host does to an image.
    """
    import pyarrow

    try:
        flat = pyarrow.array(image).values.to_numpy(zero_copy_only=True)
    except (TypeError, ValueError, pyarrow.ArrowException):  # an older Pillow, or an image in several blocks of memory
        return np.asarray(image)
    pixels: np.ndarray = flat.reshape(image.height, image.width, 4)
    return pixels
