"""What Pillow would lose on the way to RGB: values above 255, so that a page of 16 bits comes out white, alpha, and all
pages but the first."""

from __future__ import annotations

import numpy as np
from PIL import Image

from sightline.errors import SightlineError

_BITS_PER_SAMPLE = 258
_PHOTOMETRIC = 262
_WHITE_IS_ZERO = 0
_KIND_OF_PAGE = 254
_NO_PAGE = 0b101
"""Bits of that tag: a smaller copy of another page, or a mask for one."""
_PAGED = ("GIF", "PNG", "TIFF", "WEBP")
"""Formats whose frames are pictures of their own; what a JPEG has behind its first are previews and depth maps."""
_TWELVE_BITS = 4095


def pages(stored: Image.Image) -> int:
    """How many pages or frames a file has; one that Pillow shows only the first of says so here."""
    count = int(getattr(stored, "n_frames", 1)) if stored.format in _PAGED else 1
    if stored.format != "TIFF" or count == 1:
        return count
    kinds = []
    for page in range(count):
        stored.seek(page)
        kinds.append(getattr(stored, "tag_v2", {}).get(_KIND_OF_PAGE, 0))
    stored.seek(0)
    return max(1, sum(not kind & _NO_PAGE for kind in kinds))


def has_known_white(stored: Image.Image) -> bool:
    """Whether the file says which value is white: not with floats, nor with the signed or 32-bit integers of TIFF."""
    return stored.mode != "F" and not (stored.mode == "I" and stored.format == "TIFF")


def to_rgb(stored: Image.Image) -> Image.Image:
    """RGB of 8 bits; a deeper gray goes to the nearest of the 256, so 16 bits are divided by 257.

    What is transparent lies on white paper, as viewers show it. Values of 12 bits that fill no more of 16 are refused:
    they would come out nearly black.
    """
    if stored.mode != "I" and not stored.mode.startswith("I;16"):
        if ";16" in _raw_mode(stored):  # of which Pillow keeps the upper 8
            _refuse_dark(int(np.asarray(stored.convert("RGB")).max()), 255)
        return _on_white(stored) if stored.has_transparency_data else stored.convert("RGB")
    tags = getattr(stored, "tag_v2", {})
    (bits,) = tags.get(_BITS_PER_SAMPLE, (16,))
    white = 2**bits - 1
    values = np.asarray(stored).astype(np.int32)
    _refuse_dark(int(values.max()), white)
    if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO:
        values = white - values
    return Image.fromarray(((values * 255 + white // 2) // white).astype(np.uint8)).convert("RGB")


def _raw_mode(stored: Image.Image) -> str:
    """How the file holds its values, in Pillow's words: ``RGB;16B``."""
    tiles = getattr(stored, "tile", None)
    args = tiles[0][3] if tiles else ""
    return str(args[0] if isinstance(args, tuple) and args else args)


def _refuse_dark(highest: int, white: int) -> None:
    """Refuses values of 12 bits in 16; a picture that is black all over is black in any depth."""
    if white in (255, 65535) and 0 < highest <= _TWELVE_BITS * (white + 1) // 65536:
        raise SightlineError(
            f"holds values up to {highest} of {white}, as 12 bits in a file of 16 do, and would be nearly black; "
            "save it with 8 bits, or scaled to 16"
        )


def _on_white(stored: Image.Image) -> Image.Image:
    clear = stored.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")
