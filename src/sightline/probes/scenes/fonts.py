"""The shipped fonts by role, and the integer metrics that place glyphs exactly where Pillow's text drawing does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from PIL import ImageFont

from sightline.errors import SightlineError
from sightline.probes.scenes.lexicon import Split

FONT_FOLDER = Path(__file__).resolve().parents[2] / "assets" / "fonts"
SIZES = (14, 15, 16, 17, 18, 19, 20, 22, 24)
CHARACTERS = "".join(map(chr, range(33, 127)))
"""Every character that a scene can hold, apart from the blank."""


@dataclass(frozen=True)
class Face:
    """One font at one size. Offsets are in pixels from the point given to ``ImageDraw.text``."""

    file: str
    style: str
    size: int
    advance: dict[str, int]
    ink: dict[str, tuple[int, int, int, int]]
    """Bounding box (x1, y1, x2, y2) of each glyph's pixels."""
    top: int
    """Highest ink of any glyph: negative or positive."""
    bottom: int

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def blank(self) -> int:
        return max(3, round(0.3 * self.size))

    def width(self, text: str) -> int:
        advance = self.advance
        return sum([advance[character] for character in text])

    def ink_box(self, text: str) -> tuple[int, int, int, int]:
        """Bounding box of the pixels of ``text`` relative to its origin."""
        ink, advance = self.ink, self.advance
        left, top, right, bottom, x = 99, 99, -99, -99, 0
        for character in text:
            x1, y1, x2, y2 = ink[character]
            left, top, right, bottom = min(left, x + x1), min(top, y1), max(right, x + x2), max(bottom, y2)
            x += advance[character]
        return left, top, right, bottom

    def load(self) -> ImageFont.FreeTypeFont:
        return load_font(self.file, self.size)


@cache
def load_font(file: str, size: int) -> ImageFont.FreeTypeFont:
    """Basic layout: the shipped subsets carry no kerning, so a word is its glyphs at whole-pixel advances."""
    return ImageFont.truetype(str(FONT_FOLDER / file), size, layout_engine=ImageFont.Layout.BASIC)


@cache
def font_files(role: Split) -> tuple[tuple[str, str], ...]:
    """(file, style) of the fonts of one role, in catalogue order."""
    try:
        entries = json.loads((FONT_FOLDER / "fonts.json").read_text(encoding="utf-8"))
    except OSError as problem:
        raise SightlineError(f"{FONT_FOLDER}: fonts are missing ({problem}); reinstall the package") from None
    return tuple((entry["file"], entry["style"]) for entry in entries if entry["role"] == role)


@cache
def faces(role: Split) -> tuple[tuple[Face, ...], ...]:
    """Faces of one role: [font][size], in the order of ``font_files`` and ``SIZES``."""
    return tuple(tuple(_measure(file, style, size) for size in SIZES) for file, style in font_files(role))


def _measure(file: str, style: str, size: int) -> Face:
    font = load_font(file, size)
    ink = {character: _whole(font.getbbox(character)) for character in CHARACTERS}
    advance = {character: round(font.getlength(character)) for character in CHARACTERS}
    top, bottom = min(box[1] for box in ink.values()), max(box[3] for box in ink.values())
    return Face(file, style, size, advance, ink, top, bottom)


def _whole(box: tuple[float, float, float, float]) -> tuple[int, int, int, int]:
    return int(box[0]), int(box[1]), int(box[2]), int(box[3])
