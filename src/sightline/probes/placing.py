"""Texts at pixel corners become words at fractions of the image; what is clipped or dropped is counted."""

from __future__ import annotations

from collections.abc import Iterable

from sightline.core.probe import Box
from sightline.errors import SightlineError
from sightline.probes.box_format import BoxFormat, clip_to_image, contradiction, leaves_image, to_fractions
from sightline.probes.region_records import IngestCounts, Word, is_storable

_PIXEL_CORNERS = BoxFormat("xyxy", "pixels")


def hull(boxes: Iterable[Box]) -> Box:
    """The smallest box around all, of which there is at least one."""
    left, upper, right, lower = zip(*boxes, strict=True)
    return (min(left), min(upper), max(right), max(lower))


def place(texts: Iterable[tuple[str, Box]], width: float, height: float, counts: IngestCounts) -> tuple[Word, ...]:
    """Words of an image that is ``width`` by ``height`` in the unit of the corners.

    A box that ends a whole image away is dropped as malformed, since large sets have a few of them; where all boxes are
    like that, the size or the unit is wrong, and that is refused.
    """
    words: list[Word] = []
    astray: Box | None = None
    seen = stray = 0
    for text, box in texts:
        seen += 1
        fractions = to_fractions(box, width, height)
        if contradiction(box, fractions, _PIXEL_CORNERS) is not None:
            astray, stray = box, stray + 1
            counts.dropped_malformed += 1
            continue
        text = " ".join(text.split())
        if not is_storable(text):
            counts.dropped_malformed += 1
            continue
        clipped = clip_to_image(fractions)
        if clipped is None:
            counts.dropped_no_area += 1
            continue
        counts.boxes += 1
        counts.clipped_boxes += leaves_image(fractions)
        counts.boxes_without_text += not text
        words.append(Word(text, clipped))
    if astray is not None and stray == seen:
        raise SightlineError(
            f"every box is reversed or far outside an image of {width:g} x {height:g}, for example {list(astray)}; "
            "do they belong to this image, and are they in this unit?"
        )
    return tuple(words)
