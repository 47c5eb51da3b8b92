"""From annotated boxes, in a declared order and unit, to ``(x1, y1, x2, y2)`` in fractions of the image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from sightline.core.probe import Box
from sightline.errors import SightlineError

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
            raise SightlineError(f"box order {order!r} is not declared as one of xywh, xyxy (--boxes)")
        if units not in get_args(Units):
            raise SightlineError(f"box units {units!r} are not declared as one of pixels, normalised (--units)")
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
