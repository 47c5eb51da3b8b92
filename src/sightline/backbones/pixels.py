"""Pictures on their way to the vision tower: how they may be changed, and what of them the host hands over."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor


@dataclass(frozen=True)
class ImageOptions:
    """How pictures reach the model. None means: as the checkpoint's own processor says."""

    min_pixels: int | None = None
    """Qwen3-VL: lower bound of the resized area."""
    max_pixels: int | None = None
    """Qwen3-VL: upper bound of the resized area."""
    min_tiles: int | None = None
    """InternVL: fewest tiles."""
    max_tiles: int | None = None
    """InternVL: most tiles."""
    jpeg_quality: int | None = None
    """Qwen3-VL, artifact: re-encode the picture as JPEG of this quality first."""
    first_resize_factor: int | None = None
    """Qwen3-VL, artifact: resize to multiples of this before the processor resizes again."""
    tensor_resize: bool = False
    """InternVL: resize tensors (as the torchvision-backed processor does) instead of PIL pictures."""
    crop_blind: bool = False
    """LLaVA, artifact: lay the token grid over the whole picture although the processor crops it."""

    @staticmethod
    def artifact(**overrides: Any) -> ImageOptions:
        return replace(ImageOptions(jpeg_quality=85, first_resize_factor=28, crop_blind=True), **overrides)

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, False)}


Grid = tuple[int, int, int]
"""Tiles of a picture, and rows and columns of patches in each."""


@dataclass(frozen=True)
class Pixels:
    """A picture on the host, as far as it is prepared there for the vision tower."""

    data: Tensor
    """(H, W, 4) uint8, the picture's bytes, if the model lives on a GPU, which does the rest; else pixel values."""
    grid: Grid
    """What the tower will see: tiles, and rows and columns of patches in each."""
    size: tuple[int, int]
    """(width, height) of the picture before preprocessing."""
    preprocess_ms: float


def stored_pixels(image: Image.Image) -> np.ndarray:
    """(H, W, 4) bytes of an RGB picture where Pillow has them, the fourth unused; (H, W, 3) copied if it cannot share.

    Copying drops every fourth byte, pixel by pixel, which takes longer than all else that the host does to a picture.
    """
    import pyarrow

    try:
        flat = pyarrow.array(image).values.to_numpy(zero_copy_only=True)
    except (TypeError, ValueError, pyarrow.ArrowException):  # an older Pillow, or a picture in several blocks of memory
        return np.asarray(image)
    pixels: np.ndarray = flat.reshape(image.height, image.width, 4)
    return pixels
