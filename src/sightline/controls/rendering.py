"""Painting another word where a word stood: erase the box, choose a font that fits both words, draw, find a glyph."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sightline.core.probe import Box
from sightline.errors import SightlineError

Pixels = tuple[int, int, int, int]
"""left, top, right, bottom; right and bottom exclusive."""

FONTS = {
    "DejaVu Sans": "DejaVuSans.ttf",
    "DejaVu Sans Bold": "DejaVuSans-Bold.ttf",
    "DejaVu Serif": "DejaVuSerif.ttf",
    "DejaVu Serif Bold": "DejaVuSerif-Bold.ttf",
    "DejaVu Sans Mono": "DejaVuSansMono.ttf",
    "DejaVu Sans Mono Bold": "DejaVuSansMono-Bold.ttf",
}
"""Families in order of preference, and the file names of a folder of complete fonts."""
SHIPPED = Path(__file__).resolve().parents[1] / "assets" / "fonts"
SCALE = 4
LARGEST, SMALLEST = 64, 4
DARK, LIGHT = (20, 20, 20), (235, 235, 235)


def font_files(folder: Path | None = None) -> list[Path]:
    """The fonts of the list that are there: in ``folder`` under their usual names, else the shipped ASCII subsets."""
    if folder is not None:
        found = [folder / name for name in FONTS.values() if (folder / name).is_file()]
        if not found:
            raise SightlineError(f"{folder} holds none of {', '.join(FONTS.values())}; name a folder with DejaVu fonts")
        return found
    try:
        shipped = json.loads((SHIPPED / "fonts.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        shipped = []
    files = {str(entry["subset_of"]): SHIPPED / str(entry["file"]) for entry in shipped}
    found = [files[family] for family in FONTS if family in files and files[family].is_file()]
    if not found:
        raise SightlineError("no shipped font can draw the replacement; name a folder with DejaVu fonts by --fonts")
    return found


@cache
def load_font(file: Path, size: int) -> ImageFont.FreeTypeFont:
    try:
        return ImageFont.truetype(str(file), size, layout_engine=ImageFont.Layout.BASIC)
    except OSError as problem:
        raise SightlineError(f"font {file} cannot be read: {problem}") from None


@cache
def can_draw(file: Path, text: str) -> bool:
    """Whether the font has a glyph of its own for every character: a box for a missing one is no letter."""
    font = load_font(file, 32)
    missing = font.getmask("\uffff").getbbox(), bytes(font.getmask("\uffff"))
    return all(
        char.isspace() or (font.getmask(char).getbbox(), bytes(font.getmask(char))) != missing for char in set(text)
    )


def outer_pixels(box: Box, width: int, height: int) -> Pixels:
    """The whole pixels that a box touches, within the image."""
    left, top = max(0, math.floor(box[0] * width)), max(0, math.floor(box[1] * height))
    return left, top, min(width, math.ceil(box[2] * width)), min(height, math.ceil(box[3] * height))


def ink_colour(image: Image.Image, box: Pixels) -> tuple[int, int, int]:
    """Dark on a bright place, bright on a dark one."""
    return DARK if float(np.median(np.asarray(image.crop(box).convert("L")))) >= 128 else LIGHT


def erased(image: Image.Image, box: Pixels) -> Image.Image:
    """The image with the box filled from its surroundings.

    Telea inpainting of exactly the box, radius round(0.3 * shorter side) within 2..9; without OpenCV the per-channel
    median of a ring around the box, which leaves a visible patch on anything but plain ground.
    """
    width, height = box[2] - box[0], box[3] - box[1]
    pixels = np.asarray(image.convert("RGB"))
    try:
        import cv2
    except ImportError:
        return _ring_filled(pixels, box)
    mask = np.zeros(pixels.shape[:2], dtype=np.uint8)
    mask[box[1] : box[3], box[0] : box[2]] = 255
    radius = min(9, max(2, round(0.30 * min(width, height))))
    return Image.fromarray(cv2.inpaint(np.ascontiguousarray(pixels), mask, radius, cv2.INPAINT_TELEA))


def _ring_filled(pixels: np.ndarray, box: Pixels) -> Image.Image:
    left, top, right, bottom = box
    pad = max(2, round(0.25 * min(right - left, bottom - top)))
    around = np.zeros(pixels.shape[:2], dtype=bool)
    around[max(0, top - pad) : bottom + pad, max(0, left - pad) : right + pad] = True
    around[top:bottom, left:right] = False
    filled = pixels.copy()
    ground = pixels[around] if around.any() else pixels.reshape(-1, 3)
    filled[top:bottom, left:right] = np.median(ground, axis=0).round().astype(np.uint8)
    return Image.fromarray(filled)


@dataclass(frozen=True)
class Lettering:
    """A font file and the size at which both words fit the box."""

    file: Path
    size: int


def common_lettering(texts: Sequence[str], box: Pixels, files: Sequence[Path]) -> Lettering | None:
    """The font that allows the largest size at which all texts fit, the earlier one on a tie; None if none fits."""
    room = (box[2] - box[0] - 2, box[3] - box[1] - 2)
    best: Lettering | None = None
    for file in files:
        if not all(can_draw(file, text) for text in texts):
            continue
        for size in range(min(room[1] + 6, LARGEST), SMALLEST - 1, -1):
            if best is not None and size <= best.size:
                break
            font = load_font(file, size)
            if all(_extent(font, text)[0] <= room[0] and _extent(font, text)[1] <= room[1] for text in texts):
                best = Lettering(file, size)
                break
    return best


def _extent(font: ImageFont.FreeTypeFont, text: str) -> tuple[float, float]:
    left, top, right, bottom = font.getbbox(text)
    return right - left, bottom - top


def _origin(font: ImageFont.FreeTypeFont, text: str, box: Pixels) -> tuple[int, int]:
    """Where the text starts on the enlarged overlay so that its ink is centred."""
    left, top, right, bottom = (int(edge) for edge in font.getbbox(text))
    width, height = (box[2] - box[0]) * SCALE, (box[3] - box[1]) * SCALE
    return (width - (right - left)) // 2 - left, (height - (bottom - top)) // 2 - top


def lettered(
    image: Image.Image, text: str, box: Pixels, lettering: Lettering, colour: tuple[int, int, int]
) -> Image.Image:
    """The image with the text drawn into the box: four times enlarged, then reduced, so that edges are smooth."""
    font = load_font(lettering.file, lettering.size * SCALE)
    size = (box[2] - box[0], box[3] - box[1])
    overlay = Image.new("RGBA", (size[0] * SCALE, size[1] * SCALE), (*colour, 0))
    ImageDraw.Draw(overlay).text(_origin(font, text, box), text, font=font, fill=(*colour, 255))
    drawn = image.convert("RGBA")
    drawn.alpha_composite(overlay.resize(size, Image.Resampling.LANCZOS), dest=box[:2])
    return drawn.convert("RGB")


def glyph_box(text: str, index: int, box: Pixels, lettering: Lettering, image: tuple[int, int]) -> Box:
    """Where character ``index`` of a drawn text lies, one pixel wider on every side, in fractions of the image."""
    font = load_font(lettering.file, lettering.size * SCALE)
    x, y = _origin(font, text, box)
    char = text[index]
    x += int(font.getlength(text[: index + 1]) - font.getlength(char)) if index else 0
    left, top, right, bottom = font.getbbox(char)
    width, height = image
    return (
        max(0, box[0] + math.floor((x + left) / SCALE) - 1) / width,
        max(0, box[1] + math.floor((y + top) / SCALE) - 1) / height,
        min(width, box[0] + math.ceil((x + right) / SCALE) + 1) / width,
        min(height, box[1] + math.ceil((y + bottom) / SCALE) + 1) / height,
    )
