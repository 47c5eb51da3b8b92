"""The small part of SVG that the charts need: escaped tags, a linear scale, round ticks, colours, label placement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

QUALITATIVE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#3b9ede", "#7a5195", "#666666")
"""Colours that stay apart for colour-blind readers, dark and light enough for white and for near-black paper."""
_SEQUENTIAL = ((0.0, (0, 52, 110)), (0.35, (95, 102, 117)), (0.7, (176, 162, 103)), (1.0, (255, 225, 60)))
"""Blue to yellow, rising evenly in lightness, so that it reads the same in grey and with any colour vision."""
RADIUS = 8.0
"""Of the room around a point that no label takes."""
CHARACTER = 6.4
"""Width that an 11 px label needs per character, a little generous."""


def tag(name: str, *children: Markup | str, **attributes: object) -> Markup:
    """One element. Text children and attribute values are escaped; ``class_`` and ``stroke_width`` style names work."""
    parts = []
    for key, value in attributes.items():
        text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        if value is not None:
            parts.append(f' {key.rstrip("_").replace("_", "-")}="{escape(text)}"')
    inside = Markup("").join(children)
    return Markup(f"<{name}{''.join(parts)}>{inside}</{name}>")


def chart(
    width: float, height: float, title: str, description: str, *children: Markup, class_: str = "chart"
) -> Markup:
    """The outermost element, named and described for screen readers."""
    return tag(
        "svg",
        tag("title", title),
        tag("desc", description),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="img",
        aria_label=f"{title}. {description}",
        class_=class_,
    )


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] of the data to [start, end] of the page."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        return self.start + (value - self.low) / (span or 1.0) * (self.end - self.start)

    def ticks(self, wanted: int = 5) -> list[float]:
        step = round_step((self.high - self.low) / max(1, wanted))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(i * step, 10) for i in range(first, last + 1)]


def round_step(step: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    if step <= 0 or not math.isfinite(step):
        return 1.0
    power = 10 ** math.floor(math.log10(step))
    return float(next(m * power for m in (1, 2, 5, 10) if m * power >= step * (1 - 1e-9)))


def padded(values: Sequence[float]) -> tuple[float, float]:
    """Limits of shares with room around them, rounded outwards, within 0 and 1."""
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return 0.0, 1.0
    room = max(0.03, 0.08 * (max(finite) - min(finite)))
    step = round_step((max(finite) - min(finite) + 2 * room) / 6)
    low = math.floor((min(finite) - room) / step) * step
    high = math.ceil((max(finite) + room) / step) * step
    low, high = max(0.0, low), min(1.0, high)
    return (low, high) if high > low else (0.0, 1.0)


def sequential(value: float) -> str:
    """Colour of a value in [0, 1]."""
    value = min(1.0, max(0.0, value))
    for (left, a), (right, b) in pairwise(_SEQUENTIAL):
        if value <= right:
            part = (value - left) / (right - left)
            return "#" + "".join(f"{round(p + part * (q - p)):02x}" for p, q in zip(a, b, strict=True))
    return "#ffe13c"


def axes(
    x: Scale,
    y: Scale,
    x_title: str,
    y_title: str,
    *,
    x_ticks: int = 5,
    y_ticks: int = 5,
    x_marks: Sequence[tuple[float, str]] | None = None,
) -> Markup:
    """Grid lines, tick labels and axis titles; ``x_marks`` are (position, label) pairs in place of round numbers."""
    parts: list[Markup] = []
    for value in y.ticks(y_ticks):
        parts.append(tag("line", x1=x.start, x2=x.end, y1=y(value), y2=y(value), class_="grid"))
        parts.append(tag("text", tick(value), x=x.start - 8, y=y(value) + 4, text_anchor="end", class_="tick"))
    for value, text in x_marks or [(value, tick(value)) for value in x.ticks(x_ticks)]:
        parts.append(tag("line", x1=x(value), x2=x(value), y1=y.start, y2=y.end, class_="grid"))
        parts.append(tag("text", text, x=x(value), y=y.start + 17, text_anchor="middle", class_="tick"))
    parts.append(tag("line", x1=x.start, x2=x.end, y1=y.start, y2=y.start, class_="axis"))
    parts.append(tag("text", x_title, x=(x.start + x.end) / 2, y=y.start + 36, text_anchor="middle", class_="label"))
    parts.append(tag("text", y_title, x=x.start - 40, y=y.end - 12, class_="label"))
    return Markup("").join(parts)


def tick(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") or "0"


Rectangle = tuple[float, float, float, float]
LINE = 13.0
"""Height of one line of a label."""


@dataclass(frozen=True)
class Placed:
    """Where a label goes: its first line's baseline, how it is anchored, and whether it needs a line to its point."""

    x: float
    y: float
    anchor: str
    leader: bool


def place_labels(
    anchors: Sequence[tuple[float, float, Sequence[str]]], frame: Rectangle, obstacles: Sequence[Rectangle] = ()
) -> list[Placed]:
    """A place for each label, given by its point and its lines: near the point, within the frame, off all others.

    ``obstacles`` are drawn things that no label may cover. Greedy: every label takes the first free place around its
    point, then farther away; the last resort is the place where it covers least.
    """
    taken: list[Rectangle] = [(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y, _ in anchors]
    taken += obstacles
    placed = []
    for x, y, lines in anchors:
        width, rest = CHARACTER * max(map(len, lines)), LINE * (len(lines) - 1)
        best: tuple[float, Placed, Rectangle] | None = None
        for distance in (0.0, 14.0, 28.0, 44.0, 62.0, 84.0, 110.0):
            reach = RADIUS + 3 + distance
            for dx, dy, anchor in (
                (reach, 4.0 - rest / 2, "start"),
                (-reach, 4.0 - rest / 2, "end"),
                (0.0, -reach - 1 - rest, "middle"),
                (0.0, reach + 9, "middle"),
                (reach * 0.8, -reach * 0.8 - rest, "start"),
                (reach * 0.8, reach * 0.8 + 8, "start"),
                (-reach * 0.8, -reach * 0.8 - rest, "end"),
                (-reach * 0.8, reach * 0.8 + 8, "end"),
            ):
                left = x + dx - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
                box = (left, y + dy - 11, left + width, y + dy + 3 + rest)
                outside = box[0] < frame[0] or box[1] < frame[1] or box[2] > frame[2] or box[3] > frame[3]
                cost = sum(_shared(box, other) for other in taken) + (1e6 if outside else 0.0) + 0.01 * distance
                if best is None or cost < best[0]:
                    best = (cost, Placed(x + dx, y + dy, anchor, distance > 0), box)
            if best is not None and best[0] < 1.0 + 0.01 * distance:
                break
        assert best is not None
        taken.append(best[2])
        placed.append(best[1])
    return placed


def spaced_out(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The positions moved apart to at least ``gap``, in order, kept within [low, high] as far as there is room."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    moved = list(positions)
    floor = low
    for i in order:
        moved[i] = max(moved[i], floor)
        floor = moved[i] + gap
    ceiling = high
    for i in reversed(order):
        moved[i] = min(moved[i], ceiling)
        ceiling = moved[i] - gap
    return moved


def _shared(a: Rectangle, b: Rectangle) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
