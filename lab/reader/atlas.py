"""All glyphs of the training fonts as small bitmaps: a batch of scenes is drawn by copying tiles on the device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from lab.scenes.compose import CHARACTERS, SIZES, Face, faces
from lab.scenes.lexicon import Split

TILE = 36
MARGIN = 4
"""Columns left of the glyph's origin; ink may begin there."""


@dataclass(frozen=True)
class GlyphTable:
    """Per (font, size): integer advances and vertical offsets, as arrays."""

    advance: NDArray[np.int32]
    """(fonts, sizes, 94)"""
    top: NDArray[np.int32]
    """(fonts, sizes): row of the tile's first line relative to the word's origin."""
    middle: NDArray[np.float32]
    """(fonts, sizes): half height of a lower-case x, relative to the origin; where a character is said to be."""


@cache
def glyph_table(role: Split) -> GlyphTable:
    advance = [[[face.advance[character] for character in CHARACTERS] for face in sized] for sized in faces(role)]
    top = [[face.top for face in sized] for sized in faces(role)]
    middle = [[(face.ink["x"][1] + face.ink["x"][3]) / 2 for face in sized] for sized in faces(role)]
    return GlyphTable(np.array(advance, np.int32), np.array(top, np.int32), np.array(middle, np.float32))


def build_atlas(role: Split) -> NDArray[np.uint8]:
    """(fonts * sizes * 94, TILE, TILE) coverage 0..255; tile of (font, size, character) in that order."""
    tiles = [_tile(face, character) for sized in faces(role) for face in sized for character in CHARACTERS]
    assert len(tiles) == len(faces(role)) * len(SIZES) * len(CHARACTERS)
    return np.stack(tiles)


def _tile(face: Face, character: str) -> NDArray[np.uint8]:
    image = Image.new("L", (TILE, TILE), 0)
    ImageDraw.Draw(image).text((MARGIN, -face.top), character, font=face.load(), fill=255)
    return np.asarray(image)
