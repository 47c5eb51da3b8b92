"""What a pruned prefix sees of an image: kept cells lit, dropped cells dimmed, the regions outlined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sightline.geometry.region_marks import RegionMark, marks_of

DROPPED = 0.72
"""How dark a dropped cell is drawn: the fraction of black over it."""
MERGED = 0.38
"""How dark a cell is drawn that only takes part in a merge."""
OUTSIDE = 0.88
"""How dark the parts are drawn that no cell covers: the model never saw them."""
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
    cell holds it. ``kept`` is (N,) bool, the anchors; ``lineage`` (N,) bool marks every source of a merged token.
    ``roles`` say what each region is to the question: its outline then has the role's colour and letter.
    """
    picture = image.convert("RGB")
    width, height = picture.size
    shade = Image.new("L", picture.size, round(255 * (1 - OUTSIDE)))
    draw = ImageDraw.Draw(shade)
    corners = np.rint(np.asarray(cells, dtype=float) * [width, height, width, height]).astype(int)
    layers = [(np.ones(len(cells), dtype=bool), DROPPED), (kept.astype(bool), 0.0)]
    if lineage is not None:
        layers.insert(1, (lineage.astype(bool), MERGED))
    for chosen, darkness in layers:
        for x1, y1, x2, y2 in corners[chosen]:
            if x2 > x1 and y2 > y1:
                draw.rectangle((x1, y1, x2 - 1, y2 - 1), fill=round(255 * (1 - darkness)))
    lit = np.asarray(picture, dtype=np.float32) * (np.asarray(shade, dtype=np.float32)[..., None] / 255)
    picture = Image.fromarray(lit.round().astype(np.uint8))
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
