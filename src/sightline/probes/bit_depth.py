"""What Pillow would lose on the way to RGB: values above 255, so that a page of 16 bits comes out white, and alpha."""

from __future__ import annotations

import numpy as np
from PIL import Image

_BITS_PER_SAMPLE = 258
_PHOTOMETRIC = 262
_WHITE_IS_ZERO = 0


def has_known_white(stored: Image.Image) -> bool:
    """Whether the file says which value is white: not with floats, nor with the signed or 32-bit integers of TIFF."""
    return stored.mode != "F" and not (stored.mode == "I" and stored.format == "TIFF")


def to_rgb(stored: Image.Image) -> Image.Image:
    """RGB of 8 bits; a deeper gray goes to the nearest of the 256, so 16 bits are divided by 257.

    What is transparent lies on white paper, as viewers show it.
    """
    if stored.mode != "I" and not stored.mode.startswith("I;16"):
        return _on_white(stored) if stored.has_transparency_data else stored.convert("RGB")
    tags = getattr(stored, "tag_v2", {})
    (bits,) = tags.get(_BITS_PER_SAMPLE, (16,))
    white = 2**bits - 1
    values = np.asarray(stored).astype(np.int32)
    if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO:
        values = white - values
    return Image.fromarray(((values * 255 + white // 2) // white).astype(np.uint8)).convert("RGB")


def _on_white(stored: Image.Image) -> Image.Image:
    clear = stored.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")
