"""The charts of the report as inline SVG: the frontier, budget curves, reliability. Colours follow the page's theme."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from markupsafe import Markup

from sightline.core.table import Kind, format_value
from sightline.report.svg import (
    CHARACTER,
    LINE,
    QUALITATIVE,
    Rectangle,
    Scale,
    axes,
    chart,
    padded,
    place_labels,
    sequential,
    spaced_out,
    tag,
    tick,
)

Glyph = Literal["diamond", "circle", "square", "triangle", "cross"]


@dataclass(frozen=True)
class FrontierPoint:
    """One arm on the frontier: traceability to the right, quality upwards, risk as colour, regime as shape."""

    label: str
    x: float
    y: float
    colour: float
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    glyph: Glyph = "circle"
    regime: str = ""
    """What the shape stands for, in the key below the chart."""
    named: bool = True
    """Whether its label is written beside it; where there are dozens, the others are named by their tooltips."""


@dataclass(frozen=True)
class Curve:
    """One selector over its budgets, or one arm over its batch sizes."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: int | None = None
    """Which colour and marker; its place among the curves when not given."""
    ranges: Sequence[tuple[float, float]] = ()
    """The interval at each x, drawn as a bar; none, or one for each."""
    dashed: bool = False
    """For what is not a contender but a yardstick."""


WIDE, NARROW = (900.0, 480.0), (360.0, 420.0)
"""Of a frontier on a desk and on a telephone."""
BESIDE = 5.0
"""Pixels between the intervals of curves at the same place."""
PILE = 15.0
"""Points nearer than this share one label."""
BINS = 10
"""Of probability, in a diagram of reliability."""


def frontier(
    points: Sequence[FrontierPoint],
    x_title: str,
    y_title: str,
    colour_title: str,
    size: tuple[float, float] = WIDE,
    class_: str = "chart",
) -> Markup:
    """Quality against traceability, risk as colour; bars are 95% intervals. Points without a place are left out.

    Arms that pile up at one place share a label with a line for each; no label lies on an interval's bar. Nothing
    connects the points.
    """
    shown = [p for p in points if math.isfinite(p.x) and math.isfinite(p.y)]
    width, height = size
    roomy = width > NARROW[0]
    ends = [v for p in shown for v in (p.y, *(p.y_range or ()))]
    lefts = [v for p in shown for v in (p.x, *(p.x_range or ()))]
    keys = dict.fromkeys((p.glyph, p.regime) for p in shown if p.regime)
    x = Scale(*padded(lefts), 56 if roomy else 44, width - (96 if roomy else 14))
    y = Scale(*padded(ends), height - (72 if roomy else 58 + LINE * len(keys)), 34)
    risks = [p.colour for p in shown if math.isfinite(p.colour)]
    low, high = padded(risks) if risks else (0.0, 1.0)
    parts = [axes(x, y, x_title, y_title)]
    bars: list[Rectangle] = []
    for p in shown:
        if p.x_range:
            bars.append((x(p.x_range[0]), y(p.y), x(p.x_range[1]), y(p.y)))
        if p.y_range:
            bars.append((x(p.x), y(p.y_range[1]), x(p.x), y(p.y_range[0])))
    parts += [tag("line", x1=a, y1=b, x2=c, y2=d, class_="bar") for a, b, c, d in bars]
    named = [p for p in shown if p.named]
    piles = _piles([(x(p.x), y(p.y)) for p in named])
    anchors = [
        (
            sum(x(named[i].x) for i in pile) / len(pile),
            sum(y(named[i].y) for i in pile) / len(pile),
            [named[i].label for i in pile],
        )
        for pile in piles
    ]
    frame = (x.start + 2, y.end - 8, x.end if roomy else width - 2, y.start - 2)
    obstacles = [(a - 1, b - 1, c + 1, d + 1) for a, b, c, d in bars]
    obstacles += [(x(p.x) - 7, y(p.y) - 7, x(p.x) + 7, y(p.y) + 7) for p in shown]
    placed = place_labels(anchors, frame, obstacles=obstacles)
    for (at_x, at_y, lines), label in zip(anchors, placed, strict=True):
        if label.leader:
            middle_line = label.y - 4 + LINE * (len(lines) - 1) / 2
            parts.append(tag("line", x1=at_x, y1=at_y, x2=label.x, y2=middle_line, class_="leader"))
    for p in shown:
        fill = sequential((p.colour - low) / (high - low)) if math.isfinite(p.colour) else "none"
        words = (
            f"{p.label}: {y_title} {format_value(p.y, 'score')}, {x_title} {format_value(p.x, 'score')}, "
            f"{colour_title} {format_value(p.colour, 'score')}"
        )
        parts.append(_glyph(p.glyph, x(p.x), y(p.y), tag("title", words), fill=fill, class_="point"))
    for (_, _, lines), label in zip(anchors, placed, strict=True):
        for line, text in enumerate(lines):
            at = label.y + LINE * line
            parts.append(tag("text", text, x=label.x, y=at, text_anchor=label.anchor, class_="name"))
    if roomy:
        parts.append(_colour_key(width - 62, 60, 200, low, high, colour_title))
    else:
        span = f"{tick(round(low, 3))} (dark) to {tick(round(high, 3))} (light)"
        parts.append(
            tag("text", f"{colour_title}: {span}", x=width - 6, y=y.end - 12, text_anchor="end", class_="tick")
        )
    parts += _glyph_key(keys, x.start, y.start + 54, width)
    description = f"{len(shown)} arms: {', '.join(p.label for p in shown)}. The same numbers stand in the main table."
    title = f"{y_title} against {x_title}, coloured by {colour_title}"
    return chart(width, height, title, description, *parts, class_=class_)


def _piles(places: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Indices of the points that lie on one another, directly or through others."""
    piles: list[list[int]] = []
    for i, (a, b) in enumerate(places):
        near = [pile for pile in piles if any(math.hypot(a - places[j][0], b - places[j][1]) < PILE for j in pile)]
        piles = [pile for pile in piles if pile not in near]
        piles.append(sorted([i, *(j for pile in near for j in pile)]))
    return sorted(piles)


def _glyph(shape: Glyph, x: float, y: float, *children: Markup, **attributes: object) -> Markup:
    if shape == "circle":
        return tag("circle", *children, cx=x, cy=y, r=6.0, **attributes)
    arms = ((0, -3), (3, -6), (6, -3), (3, 0), (6, 3), (3, 6), (0, 3), (-3, 6), (-6, 3), (-3, 0), (-6, -3), (-3, -6))
    outlines: dict[Glyph, Sequence[tuple[float, float]]] = {
        "diamond": ((0, -8), (8, 0), (0, 8), (-8, 0)),
        "square": ((-5.5, -5.5), (5.5, -5.5), (5.5, 5.5), (-5.5, 5.5)),
        "triangle": ((0, -7.5), (7, 5), (-7, 5)),
        "cross": arms,
    }
    route = "L".join(f"{x + a:.1f} {y + b:.1f}" for a, b in outlines[shape])
    return tag("path", *children, d=f"M{route}Z", **attributes)


def _glyph_key(keys: Iterable[tuple[Glyph, str]], left: float, top: float, width: float) -> list[Markup]:
    """What the shapes stand for: beside one another where there is room, else below one another."""
    parts, x, y = [], left, top
    for shape, words in keys:
        needed = 26 + CHARACTER * len(words)
        if x > left and x + needed > width:
            x, y = left, y + LINE + 2
        parts.append(_glyph(shape, x + 7, y - 4, fill="none", class_="point"))
        parts.append(tag("text", words, x=x + 20, y=y, class_="tick"))
        x += needed + 12
    return parts


def _colour_key(left: float, top: float, height: float, low: float, high: float, title: str) -> Markup:
    steps = 40
    parts = [tag("text", title, x=left + 58, y=top - 12, text_anchor="end", class_="label")]
    for i in range(steps):
        at = top + height * i / steps
        colour = sequential(1 - (i + 0.5) / steps)
        parts.append(tag("rect", x=left, y=at, width=14.0, height=height / steps + 0.5, fill=colour))
    for part in (0.0, 0.5, 1.0):
        value = low + (high - low) * part
        parts.append(tag("text", tick(round(value, 3)), x=left + 20, y=top + height * (1 - part) + 4, class_="tick"))
    return Markup("").join(parts)


def budget_curves(
    curves: Sequence[Curve],
    y_title: str,
    reference: float | None = None,
    size: tuple[float, float] = (366.0, 270.0),
    class_: str = "chart",
) -> Markup:
    """One quantity over the kept fraction, a line per selector, labelled at its right end; Full is the dashed line."""
    width, height = size
    values = [v for c in curves for v in (*c.y, *(end for ends in c.ranges for end in ends)) if math.isfinite(v)]
    if reference is not None and math.isfinite(reference):
        values.append(reference)
    name_room = min(0.36 * width, 12 + CHARACTER * max(len(c.label) for c in curves))
    x = Scale(*padded([v for c in curves for v in c.x]), 52, width - name_room)
    y = Scale(*padded(values), height - 50, 34)
    parts = [axes(x, y, "keep", y_title, x_ticks=4, y_ticks=4)]
    if reference is not None and math.isfinite(reference):
        parts.append(tag("line", x1=x.start, x2=x.end, y1=y(reference), y2=y(reference), class_="reference"))
        below = y(reference) - y.end < 14  # No room between the line and the chart's title.
        parts.append(tag("text", "Full", x=x.start + 4, y=y(reference) + (13 if below else -5), class_="name"))
    longest = int((name_room - 10) / CHARACTER)
    cut = (c.label if len(c.label) <= longest else f"{c.label[: longest - 1]}…" for c in curves)
    parts += labelled_lines([replace(c, label=label) for c, label in zip(curves, cut, strict=True)], x, y)
    title, words = f"{y_title} over the kept fraction", curves_in_words(curves, "score")
    return chart(width, height, title, words, *parts, class_=class_)


def curves_in_words(curves: Sequence[Curve], kind: Kind) -> str:
    """Where each line begins and ends, for whoever does not see the chart."""
    return "; ".join(
        f"{curve.label} from {format_value(curve.y[0], kind)} at {tick(curve.x[0])} "
        f"to {format_value(curve.y[-1], kind)} at {tick(curve.x[-1])}"
        for curve in curves
    )


def labelled_lines(curves: Sequence[Curve], x: Scale, y: Scale) -> list[Markup]:
    """Lines with markers, each named at its right end."""
    parts = []
    ends = _label_heights([(x(c.x[-1]), y(c.y[-1]) + 4) for c in curves], y.end, y.start)
    for place, (curve, end) in enumerate(zip(curves, ends, strict=True)):
        i = place if curve.style is None else curve.style
        colour = QUALITATIVE[i % len(QUALITATIVE)]
        # Bars of curves with the same budgets stand beside one another, not on one another.
        aside = BESIDE * (place - (len(curves) - 1) / 2) if curve.ranges else 0.0
        spots = [(x(a) + aside, y(b)) for a, b in zip(curve.x, curve.y, strict=True)]
        route = " ".join(f"{a:.1f},{b:.1f}" for a, b in spots)
        dash = "5 3" if curve.dashed or i >= len(QUALITATIVE) else None
        for a, (low, high) in zip(curve.x, curve.ranges, strict=False):
            if math.isfinite(low) and math.isfinite(high):
                at = x(a) + aside
                parts.append(tag("line", x1=at, x2=at, y1=y(low), y2=y(high), stroke=colour, class_="range"))
        parts.append(tag("polyline", points=route, fill="none", stroke=colour, stroke_width=2.0, stroke_dasharray=dash))
        parts += [_marker(i, a, b, colour) for a, b in spots]
        parts.append(tag("text", curve.label, x=spots[-1][0] + 9, y=end, class_="name"))
    return parts


def _label_heights(ends: Sequence[tuple[float, float]], low: float, high: float) -> list[float]:
    """Where the label of each curve stands; only labels that start at the same place push one another apart."""
    heights = [y for _, y in ends]
    for left in {round(x) for x, _ in ends}:
        group = [i for i, (x, _) in enumerate(ends) if round(x) == left]
        for i, moved in zip(group, spaced_out([heights[i] for i in group], 13, low, high), strict=True):
            heights[i] = moved
    return heights


def _marker(kind: int, x: float, y: float, colour: str) -> Markup:
    """Circle, square, triangle, diamond in turn: lines stay apart without colour."""
    shape = kind % 4
    if shape == 0:
        return tag("circle", cx=x, cy=y, r=3.6, fill=colour)
    if shape == 1:
        return tag("rect", x=x - 3.3, y=y - 3.3, width=6.6, height=6.6, fill=colour)
    outline = ((0, -4.6), (4.3, 3.4), (-4.3, 3.4)) if shape == 2 else ((0, -4.8), (4.4, 0), (0, 4.8), (-4.4, 0))
    return tag("polygon", points=" ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in outline), fill=colour)


def reliability(name: str, probability: np.ndarray, positive: np.ndarray) -> Markup:
    """Observed share of yes-labels against the model's probability of yes, sigmoid(margin); area is the bin's count."""
    size, left = 176.0, 34.0
    most = int((size - 4) / CHARACTER)
    titles = [part[i : i + most] for part in name.split(" · ", 1) for i in range(0, len(part), most)]
    top = 12.0 + LINE * len(titles)
    height = top + size - 34
    x, y = Scale(0, 1, left, size - 8), Scale(0, 1, height - 8, top)
    parts = [tag("text", line, x=4.0, y=12.0 + LINE * place, class_="name strong") for place, line in enumerate(titles)]
    for value in (0.0, 0.5, 1.0):
        parts.append(tag("line", x1=x.start, x2=x.end, y1=y(value), y2=y(value), class_="grid"))
        parts.append(tag("line", x1=x(value), x2=x(value), y1=y.start, y2=y.end, class_="grid"))
        parts.append(tag("text", tick(value), x=left - 6, y=y(value) + 4, text_anchor="end", class_="tick"))
    parts.append(tag("line", x1=x(0), y1=y(0), x2=x(1), y2=y(1), class_="reference"))
    rows = reliability_bins(probability, positive)
    for mean, observed, count in rows:
        radius = 2.0 + 9.0 * math.sqrt(count / max(1, len(probability)))
        words = f"probability {mean:.2f}: {observed:.2f} of {count} are yes"
        parts.append(tag("circle", tag("title", words), cx=x(mean), cy=y(observed), r=radius, class_="bin"))
    description = "; ".join(
        f"{mean:.2f} predicted, {observed:.2f} observed, n {count}" for mean, observed, count in rows
    )
    return chart(size, height, f"Reliability of {name}", description or "no rows", *parts, class_="chart small")


def reliability_bins(probability: np.ndarray, positive: np.ndarray) -> list[tuple[float, float, int]]:
    """(mean probability, share of yes, count) of each equal-width bin that holds anything."""
    index = np.minimum((probability * BINS).astype(int), BINS - 1)
    counts = np.bincount(index, minlength=BINS)
    means = np.bincount(index, probability, BINS)
    yes = np.bincount(index, positive.astype(float), BINS)
    return [(float(means[b] / counts[b]), float(yes[b] / counts[b]), int(counts[b])) for b in range(BINS) if counts[b]]


def curves_by_selector(rows: Sequence[Mapping[str, object]], metric: str, *, intervals: bool = False) -> list[Curve]:
    """Arms of the same selector joined over their budgets; selectors with a single budget have no curve.

    With ``intervals`` every point has its own, and a selector with a single budget is a point.
    """
    grouped: dict[str, list[tuple[float, float, tuple[float, float]]]] = {}
    for row in rows:
        value, keep = float(str(row[metric])), float(str(row["keep"]))
        ends = (float(str(row[f"{metric}_low"])), float(str(row[f"{metric}_high"]))) if intervals else (value, value)
        if math.isfinite(value) and math.isfinite(keep):
            grouped.setdefault(str(row["selector"]), []).append((keep, value, ends))
    curves = []
    for label, points in grouped.items():
        keeps, values, ranges = zip(*sorted(points), strict=True)
        if intervals or len(set(keeps)) > 1:
            curves.append(Curve(label, list(keeps), list(values), ranges=ranges if intervals else ()))
    return curves
