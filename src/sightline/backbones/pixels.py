"""Images on their way to the vision tower: what of them the host hands over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from PIL import Image
from torch import Tensor

from sightline.backbones.options import ImageOptions

Grid = tuple[int, int, int]
"""Tiles of an image, and rows and columns of patches in each."""


@dataclass(frozen=True)
class Fit:
    """An image asked for at fewer visual tokens than it usually makes."""

    options: ImageOptions
    """Under which it makes as many tokens as the budget allows, or as few less as its size permits."""
    usual_n: int
    """Tokens that it makes at its usual size."""


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
    fit: Fit | None = None
    """How it is made smaller to meet a budget; None: it has its usual size."""
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    """What else the checkpoint's own image processor says about it, where that one prepares images."""

    @property
    def options(self) -> ImageOptions | None:
        """Those it was prepared under; None: the backbone's."""
        return None if self.fit is None else self.fit.options


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
