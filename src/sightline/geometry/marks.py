"""What is drawn on an image: lit cells, marks of regions, and how much around a region is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

# How regions are told apart in a picture: a colour and a letter for what each is to the question.
#
# The letter says everything that the colour says, so that a picture reads the same without colours.


class RegionMark(NamedTuple):
    """What is drawn around a region, and what it means."""

    letter: str
    colour: str
    """``#rrggbb``, light enough to stand out from a dimmed image and dark enough on a white page."""
    words: str


UNTYPED = RegionMark("", "#ff8a00", "region with the evidence")
MARKS = {
    "answer_value": RegionMark("V", "#ff8a00", "the answer's value"),
    "field_label": RegionMark("L", "#3b9ede", "label of the field"),
    "row_header": RegionMark("R", "#12b886", "head of the row"),
    "column_header": RegionMark("C", "#e05fb0", "head of the column"),
    "comparison_anchor": RegionMark("A", "#b08cff", "anchor of the comparison"),
    "context": RegionMark("X", "#c9a800", "context"),
}
"""By role."""
SWAPPED, SWAPPED_FOR = "swapped", RegionMark("S", "#ff5c7a", "answered from here")
"""Where a wrong answer stands on the page: the role of a region that no probe has, and its mark."""
NOT_FOUND = RegionMark("", "#ff5c7a", "text that was not found")
"""A text of the page that a transcription lacks, at least half of it."""


def marks_of(roles: Sequence[str], regions: int) -> list[RegionMark]:
    """One mark per region; untyped where nobody said what the regions are. An unknown role keeps its name."""
    if not roles:
        return [UNTYPED] * regions
    known = {**MARKS, SWAPPED: SWAPPED_FOR}
    return [known.get(role) or RegionMark(role[:1].upper(), UNTYPED.colour, role.replace("_", " ")) for role in roles]


# What a pruned prefix sees of an image: kept cells lit, dropped cells dimmed, the regions outlined.

DROPPED = 0.72
"""How faint a dropped cell is drawn: the fraction of the veil over it."""
MERGED = 0.38
"""How faint a cell is drawn that only takes part in a merge."""
OUTSIDE = 0.88
"""How faint the parts are drawn that no cell covers: the model never saw them."""
DARK = 110
"""Median luminance, of 255, below which an image is dark: black over it would tell nothing apart."""
BLACK, PALE = "#000000", "#f4f1ea"
"""What is laid over dropped cells: of the two what the image itself is not."""
LOOKED_AT = 96
"""Pixels of the longer side that the median is taken over: the same for an image and for its preview."""


def veil_of(image: Image.Image) -> str:
    """The colour of what is laid over cells that were dropped: pale on a dark image, else black."""
    small = image.convert("L")
    small.thumbnail((LOOKED_AT, LOOKED_AT))
    return PALE if float(np.median(np.asarray(small))) < DARK else BLACK


LETTER_SHARE, SMALLEST_LETTER = 1 / 30, 11
"""Height of a region's letter: its share of the image's longer side, and its least in pixels."""


def overlay(
    image: Image.Image,
    cells: np.ndarray,
    kept: np.ndarray,
    regions: Iterable[Sequence[float]],
    *,
    lineage: np.ndarray | None = None,
    roles: Sequence[str] = (),
) -> Image.Image:
    """The image as the pruned prefix sees it.

    ``cells`` is (N, 4) in fractions of the image and may overlap (tiles and a thumbnail): a pixel is lit when any kept
    cell holds it. Dropped cells are dimmed, on a dark image paled. ``kept`` is (N,) bool, the anchors; ``lineage``
    (N,) bool marks every source of a merged token.
    Without any cells nothing is known to be unseen, and no pixel is dimmed.
    ``roles`` say what each region is to the question: its outline then has the role's colour and letter.
    """
    picture = image.convert("RGB")
    width, height = picture.size
    shade = Image.new("L", picture.size, round(255 * (1 - OUTSIDE)) if len(cells) else 255)
    draw = ImageDraw.Draw(shade)
    corners = np.rint(np.asarray(cells, dtype=float) * [width, height, width, height]).astype(int)
    layers = [(np.ones(len(cells), dtype=bool), DROPPED), (kept.astype(bool), 0.0)]
    if lineage is not None:
        layers.insert(1, (lineage.astype(bool), MERGED))
    for chosen, darkness in layers:
        for x1, y1, x2, y2 in corners[chosen]:
            if x2 > x1 and y2 > y1:
                draw.rectangle((x1, y1, x2 - 1, y2 - 1), fill=round(255 * (1 - darkness)))
    picture = Image.composite(picture, Image.new("RGB", picture.size, veil_of(picture)), shade)
    outlined = list(regions)
    _outline(picture, outlined, marks_of(roles, len(outlined)))
    return picture


def _outline(picture: Image.Image, regions: Sequence[Sequence[float]], marks: Sequence[RegionMark]) -> None:
    """Frames around the regions, which cover nothing of them; a letter above each, or below where there is no room."""
    width, height = picture.size
    draw = ImageDraw.Draw(picture)
    line = max(2, round(max(picture.size) / 320))
    for (x1, y1, x2, y2), mark in zip(regions, marks, strict=True):
        box = (x1 * width - line, y1 * height - line, x2 * width + line, y2 * height + line)
        draw.rectangle(tuple(v - line / 2 if i < 2 else v + line / 2 for i, v in enumerate(box)), outline=(0, 0, 0))
        draw.rectangle(box, outline=mark.colour, width=line)
        if mark.letter:
            size = max(SMALLEST_LETTER, round(max(picture.size) * LETTER_SHARE))
            top = box[1] - size - line if box[1] > size + line else box[3] + line
            draw.rectangle((box[0], top, box[0] + size, top + size), fill=mark.colour, outline=(0, 0, 0))
            middle = (box[0] + size / 2, top + size / 2)
            draw.text(middle, mark.letter, fill=(0, 0, 0), font=ImageFont.load_default(0.8 * size), anchor="mm")


# What is shown when evidence is magnified: the regions with enough around them to see where they stand.


def surroundings(regions: Sequence[Sequence[float]], width: float, height: float) -> tuple[float, float, float, float]:
    """(x1, y1, x2, y2) in pixels of an image of that size, around ``regions`` in fractions of it, never beyond it.

    At least a fifth of the image wide and three times as wide as high, unless the regions are higher.
    """
    boxes = np.asarray(regions, dtype=float) * [width, height, width, height]
    left, top = boxes[:, :2].min(axis=0)
    right, bottom = boxes[:, 2:].max(axis=0)
    wide = min(float(width), max((right - left) * 1.8, (bottom - top) * 6, width / 5))
    tall = min(float(height), max(wide / 3, (bottom - top) * 1.6))
    x = min(max(0.0, (left + right - wide) / 2), width - wide)
    y = min(max(0.0, (top + bottom - tall) / 2), height - tall)
    return float(x), float(y), float(x + wide), float(y + tall)
