"""Regions: boxes in every notation, their roles, records of them, and words placed on a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

from sightline.core.probe import Box, Probe
from sightline.errors import SightlineError
from sightline.probes.packed_images import PackedImages

# From annotated boxes, in a declared order and unit, to ``(x1, y1, x2, y2)`` in fractions of the image.

Order = Literal["xywh", "xyxy"]
Units = Literal["pixels", "normalised"]


@dataclass(frozen=True)
class BoxFormat:
    """How four numbers are meant. It is always declared, never concluded from how large the numbers are."""

    order: Order
    units: Units

    @staticmethod
    def declared(order: object, units: object) -> BoxFormat:
        if order not in get_args(Order):
            stated = "" if order is None else f" {order!r}"
            raise SightlineError(f"box order{stated} is not declared as one of xywh, xyxy (--boxes)")
        if units not in get_args(Units):
            stated = "" if units is None else f" {units!r}"
            raise SightlineError(f"box units{stated} are not declared as one of pixels, normalised (--units)")
        return BoxFormat(cast(Order, order), cast(Units, units))


def four_numbers(values: Any) -> tuple[float, float, float, float] | None:
    """The first four entries as finite floats, or None where that is not what they are."""
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) < 4:
        return None
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values[:4]):
        return None
    try:
        a, b, c, d = (float(value) for value in values[:4])
    except OverflowError:  # an integer beyond every float
        return None
    return (a, b, c, d) if all(math.isfinite(value) for value in (a, b, c, d)) else None


def box_around(outline: Any) -> Box | None:
    """The box around points ``x, y, x, y, ...``, of which there are at least two; None where they are no such list."""
    if not isinstance(outline, Sequence) or len(outline) < 4 or len(outline) % 2:
        return None
    corner_boxes = [four_numbers([x, y, x, y]) for x, y in zip(outline[::2], outline[1::2], strict=True)]
    return None if None in corner_boxes else hull(box for box in corner_boxes if box is not None)


def corners(values: tuple[float, float, float, float], order: Order) -> Box:
    """``(x1, y1, x2, y2)`` in the units of the input."""
    a, b, c, d = values
    return (a, b, a + c, b + d) if order == "xywh" else (a, b, c, d)


def to_fractions(box: Box, width: float, height: float) -> Box:
    """Pixel corners divided by the image size; not clipped."""
    return (box[0] / width, box[1] / height, box[2] / width, box[3] / height)


def leaves_image(box: Box) -> bool:
    return min(box) < 0.0 or max(box) > 1.0


def clip_to_image(box: Box) -> Box | None:
    """Each coordinate clamped to [0, 1] and the corners put in order; None when no area is left."""
    x1, y1, x2, y2 = (min(1.0, max(0.0, value)) for value in box)
    x1, x2 = min(x1, x2), max(x1, x2)
    y1, y2 = min(y1, y2), max(y1, y2)
    return (x1, y1, x2, y2) if (x2 - x1) * (y2 - y1) > 0.0 else None


def contradiction(box: Box, fractions: Box, form: BoxFormat) -> str | None:
    """Why ``box`` cannot have been written in ``form``, or None. ``box`` holds corners in the declared units.

    A box may leave the image a little (annotators do that); one that ends a whole image away from it was not written in
    these units.
    """
    if box[2] < box[0] or box[3] < box[1]:
        return "has x2 < x1 or y2 < y1" if form.order == "xyxy" else "has a negative width or height"
    if min(fractions) < -1.0 or max(fractions) > 2.0:
        return "lies far outside the image"
    return None


# What a region is to an open question.

ANSWER, CONTEXT = "answer_value", "context"
ROLES = {
    ANSWER: "the answer itself",
    "field_label": "the label that says what the answer is",
    "row_header": "the head of the answer's row",
    "column_header": "the head of the answer's column",
    "comparison_anchor": "what the answer is compared with, or measured from",
    CONTEXT: "what has to be read besides",
}
"""Role -> what it says of a region."""


def check_roles(roles: Sequence[str]) -> tuple[str, ...]:
    """The roles, if all are known."""
    for role in roles:
        if role not in ROLES:
            raise SightlineError(f"role {role!r} is not one of {', '.join(ROLES)}")
    return tuple(roles)


# Region records: the words of one image, each with its box. What every ingest yields and every builder reads.


def is_storable(text: str) -> bool:
    """Whether UTF-8 can hold the text. JSON escapes can smuggle in half of a surrogate pair, which it cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class Word:
    """A transcription and the box it stands in. ``text`` is empty for a box nobody transcribed."""

    text: str
    box: Box


@dataclass(frozen=True)
class ImageRegions:
    """All usable boxes of one image, in annotation order."""

    image_id: str
    image: str
    """File name relative to the image root."""
    words: tuple[Word, ...]
    width: int | float | None = None
    height: int | float | None = None
    split: str = ""
    dataset: str = ""
    box_source: str = ""
    id_prefix: str = ""
    """Put before the image id in probe ids (``textocr-`` for TextOCR)."""

    @property
    def record_id(self) -> str:
        return f"{self.id_prefix}{self.image_id}"

    @property
    def texts(self) -> list[str]:
        """Transcriptions, without the empty ones."""
        return [word.text for word in self.words if word.text]


@dataclass
class IngestCounts:
    """What reading annotations kept, changed and dropped; nothing disappears without being counted."""

    images: int = 0
    images_same_as_another: int = 0
    images_without_boxes: int = 0
    boxes: int = 0
    boxes_without_text: int = 0
    clipped_boxes: int = 0
    dropped_missing: int = 0
    dropped_malformed: int = 0
    dropped_small: int = 0
    dropped_no_area: int = 0
    files_left_out: int = 0
    captions_without_relation: int = 0
    questions_without_both_boxes: int = 0
    questions: int = 0
    regions: int = 0
    questions_without_image: int = 0
    questions_without_text: int = 0
    questions_without_answers: int = 0

    def clipped(self, fractions: Box | None, text: str) -> Box | None:
        """A text's box within the image, counted; None, counted too, where nothing of it is left."""
        found = None if fractions is None else clip_to_image(fractions)
        if fractions is None or found is None:
            self.dropped_no_area += 1
            return None
        self.boxes += 1
        self.clipped_boxes += leaves_image(fractions)
        self.boxes_without_text += not text
        return found

    def notes(self) -> list[str]:
        """One phrase per counter that is not zero."""
        return [f"{getattr(self, f.name)} {f.name.replace('_', ' ')}" for f in fields(self) if getattr(self, f.name)]


@dataclass(frozen=True)
class Ingest:
    """Region records in file order, and the counts of what happened on the way."""

    records: tuple[ImageRegions, ...]
    counts: IngestCounts
    source: Mapping[str, Any] = field(default_factory=dict)
    """Where they come from, for the header of a probe file: names and digests, no folders."""
    images: Path | None = None
    """The folder that image names are relative to, where the format found the images by itself."""
    probes: tuple[Probe, ...] = ()
    """Questions that the file itself asks. Where there are any, none are built from the words."""
    kinds: tuple[str, ...] = ()
    """The order in which the questions' kinds are drawn from; kinds that are not named here follow by name."""
    packed: PackedImages | None = field(default=None, compare=False)
    """Images that lie inside the files, to be unpacked once it is known which of them are needed."""


# Texts at pixel corners become words at fractions of the image; what is clipped or dropped is counted.

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
        clipped = counts.clipped(fractions, text)
        if clipped is not None:
            words.append(Word(text, clipped))
    if astray is not None and stray == seen:
        raise SightlineError(
            f"every box is reversed or far outside an image of {width:g} x {height:g}, for example {list(astray)}; "
            "do they belong to this image, and are they in this unit?"
        )
    return tuple(words)
