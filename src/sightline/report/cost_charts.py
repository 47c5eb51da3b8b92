"""The charts of cost cards: stages of a picture on its way to the first token, and rates over the batch size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from sightline.report.charts import Curve, labelled_lines
from sightline.report.svg import CHARACTER, QUALITATIVE, Scale, axes, chart, round_step, tag, tick
from sightline.report.table import format_value

BETWEEN = "between stages"
LONGEST = 34
"""Characters of an arm's name that fit beside its bar."""


@dataclass(frozen=True)
class Bar:
    """One arm under one execution: milliseconds of its stages, and the total that was timed as a whole."""

    label: str
    group: str
    stages: Mapping[str, float]
    total: float
    low: float
    high: float
    speedup: float | None = None
    """As the card has it: against the full prefix under the same conditions."""


def stage_bars(bars: Sequence[Bar], order: Sequence[str], title: str, unit: str = "median milliseconds") -> Markup:
    """A bar of stages per arm, grouped by execution; the mark is the total with its bounds.

    ``order`` holds all stages that the kind of card knows, so that a stage has the same colour on every card.
    """
    colours = {stage: QUALITATIVE[i % len(QUALITATIVE)] for i, stage in enumerate(order)}
    used = [stage for stage in order if any(stage in bar.stages for bar in bars)]
    width, left, right = 900.0, 16 + CHARACTER * min(LONGEST, max(len(bar.label) for bar in bars)), 150.0
    key, top = _key([(stage, colours[stage]) for stage in used], left, width)
    groups = list(dict.fromkeys(bar.group for bar in bars))
    height = top + sum(24 + 26 * sum(bar.group == group for bar in bars) for group in groups) + 56
    longest = max(max(bar.high, sum(bar.stages.values())) for bar in bars)
    x = Scale(0, longest, left, width - right)
    parts = [*_milliseconds(x, top, height - 50, unit), *key]
    at = top
    for group in groups:
        at += 18
        parts.append(tag("text", group, x=left, y=at, class_="name strong"))
        at += 6
        for bar in bars:
            if bar.group == group:
                parts += _bar(bar, at, x, colours)
                at += 26
    description = "; ".join(f"{bar.group}, {_words(bar)}" for bar in bars)
    return chart(width, height, title, description, *parts, class_="chart wide")


def _milliseconds(x: Scale, top: float, bottom: float, unit: str) -> list[Markup]:
    """The axis below the bars; the arms stand where another would have numbers."""
    parts = []
    for value in x.ticks():
        parts.append(tag("line", x1=x(value), x2=x(value), y1=bottom, y2=top, class_="grid"))
        parts.append(tag("text", tick(value), x=x(value), y=bottom + 17, text_anchor="middle", class_="tick"))
    parts.append(tag("line", x1=x.start, x2=x.end, y1=bottom, y2=bottom, class_="axis"))
    parts.append(tag("text", unit, x=(x.start + x.end) / 2, y=bottom + 36, text_anchor="middle", class_="label"))
    return parts


def _bar(bar: Bar, top: float, x: Scale, colours: Mapping[str, str]) -> list[Markup]:
    middle, thickness = top + 9, 18.0
    label = bar.label if len(bar.label) <= LONGEST else bar.label[: LONGEST - 1] + "…"
    parts = [tag("text", tag("title", bar.label), label, x=x.start - 8, y=middle + 4, text_anchor="end", class_="name")]
    ends = 0.0
    for stage, colour in colours.items():
        ms = max(0.0, bar.stages.get(stage, 0.0))
        if ms > 0.0:
            words = f"{bar.group}, {bar.label}: {stage} {ms:.2f} ms"
            parts.append(_piece(x(ends), x(ends + ms), top, thickness, words, fill=colour))
        ends += ms
    if bar.total > ends:
        words = f"{bar.group}, {bar.label}: {bar.total - ends:.2f} ms {BETWEEN}"
        parts.append(_piece(x(ends), x(bar.total), top, thickness, words, class_="rest"))
    reach = max(ends, bar.total, bar.high)
    parts.append(tag("line", x1=x(bar.low), x2=x(bar.high), y1=middle, y2=middle, class_="whisker"))
    parts.append(tag("line", x1=x(bar.total), x2=x(bar.total), y1=middle - 6, y2=middle + 6, class_="whisker"))
    words = f"{format_value(bar.total, 'number')} ms"
    if bar.speedup is not None:
        words += f" · {format_value(bar.speedup, 'ratio')}"
    parts.append(tag("text", words, x=x(reach) + 8, y=middle + 4, class_="name"))
    return parts


def _piece(start: float, end: float, top: float, height: float, words: str, **style: object) -> Markup:
    return tag("rect", tag("title", words), x=start, y=top, width=end - start, height=height, **style)


def _words(bar: Bar) -> str:
    stages = ", ".join(f"{stage} {ms:.2f}" for stage, ms in bar.stages.items())
    return f"{bar.label}: {bar.total:.2f} ms ({stages})"


def _key(entries: Sequence[tuple[str, str]], left: float, width: float) -> tuple[list[Markup], float]:
    """Swatches with names, in lines as wide as the chart, and where the chart may begin below them."""
    parts = []
    at, line = left, 8.0
    for name, colour in [*entries, (BETWEEN, "")]:
        room = 24 + CHARACTER * len(name) + 10
        if at + room > width:
            at, line = left, line + 20
        style: dict[str, object] = {"fill": colour} if colour else {"class_": "rest"}
        parts.append(tag("rect", x=at, y=line, width=12.0, height=12.0, **style))
        parts.append(tag("text", name, x=at + 18, y=line + 10, class_="name"))
        at += room
    return parts, line + 20


def batch_curves(curves: Sequence[Curve], y_title: str, highest: float) -> Markup:
    """One quantity over the batch size, which doubles to the right; ``highest`` lets panels share their scale."""
    width, height = 420.0, 270.0
    batches = sorted({int(value) for curve in curves for value in curve.x})
    room = min(180.0, 14 + CHARACTER * max(len(curve.label) for curve in curves))
    x = Scale(math.log2(batches[0]), math.log2(batches[-1]), 52, width - room)
    step = round_step(1.05 * highest / 4)
    y = Scale(0, math.ceil(1.05 * highest / step) * step, height - 50, 34)
    every = math.ceil(len(batches) / 6)  # More labels than this would touch each other.
    marks = [(math.log2(b), tick(b) if i % every == 0 else "") for i, b in enumerate(batches)]
    parts = [axes(x, y, "batch size", y_title, x_marks=marks, y_ticks=4)]
    parts += labelled_lines([replace(curve, x=[math.log2(value) for value in curve.x]) for curve in curves], x, y)
    description = "; ".join(
        f"{c.label} from {format_value(c.y[0], 'number')} at {tick(c.x[0])} "
        f"to {format_value(c.y[-1], 'number')} at {tick(c.x[-1])}"
        for c in curves
    )
    return chart(width, height, f"{y_title} over the batch size", description, *parts)
