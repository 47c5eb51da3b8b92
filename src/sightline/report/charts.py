"""The charts of the report as inline SVG: the frontier, budget curves, reliability. Colours follow the page's theme."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from sightline.report.svg import (
    CHARACTER,
    QUALITATIVE,
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
from sightline.report.table import format_value


@dataclass(frozen=True)
class FrontierPoint:
    """One arm on the frontier: traceability to the right, quality upwards, risk as colour."""

    label: str
    x: float
    y: float
    colour: float
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    reference: bool = False


@dataclass(frozen=True)
class Curve:
    """One selector over its budgets, or one arm over its batch sizes."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: int | None = None
    """Which colour and marker; its place among the curves when not given."""


def frontier(points: Sequence[FrontierPoint], x_title: str, y_title: str, colour_title: str) -> Markup:
    """Quality against traceability, risk as colour; bars are 95% intervals. Points without a place are left out."""
    shown = [p for p in points if math.isfinite(p.x) and math.isfinite(p.y)]
    width, height = 900.0, 460.0
    ends = [v for p in shown for v in (p.y, *(p.y_range or ()))]
    lefts = [v for p in shown for v in (p.x, *(p.x_range or ()))]
    x = Scale(*padded(lefts), 56, width - 96)
    y = Scale(*padded(ends), height - 50, 34)
    risks = [p.colour for p in shown if math.isfinite(p.colour)]
    low, high = padded(risks) if risks else (0.0, 1.0)
    parts = [axes(x, y, x_title, y_title)]
    for p in shown:
        if p.x_range:
            parts.append(tag("line", x1=x(p.x_range[0]), x2=x(p.x_range[1]), y1=y(p.y), y2=y(p.y), class_="bar"))
        if p.y_range:
            parts.append(tag("line", y1=y(p.y_range[0]), y2=y(p.y_range[1]), x1=x(p.x), x2=x(p.x), class_="bar"))
    frame = (x.start + 2, y.end, width - 100, y.start - 2)
    places = place_labels([(x(p.x), y(p.y), p.label) for p in shown], frame)
    for p, (at_x, at_y, _, leader) in zip(shown, places, strict=True):
        if leader:
            parts.append(tag("line", x1=x(p.x), y1=y(p.y), x2=at_x, y2=at_y - 4, class_="leader"))
    for p, (at_x, at_y, anchor, _) in zip(shown, places, strict=True):
        fill = sequential((p.colour - low) / (high - low)) if math.isfinite(p.colour) else "none"
        words = (
            f"{p.label}: {y_title} {format_value(p.y, 'score')}, {x_title} {format_value(p.x, 'score')}, "
            f"{colour_title} {format_value(p.colour, 'score')}"
        )
        if p.reference:
            a, b = x(p.x), y(p.y)
            path = f"M{a:.1f} {b - 8:.1f}L{a + 8:.1f} {b:.1f}L{a:.1f} {b + 8:.1f}L{a - 8:.1f} {b:.1f}Z"
            parts.append(tag("path", tag("title", words), d=path, fill=fill, class_="point"))
        else:
            parts.append(tag("circle", tag("title", words), cx=x(p.x), cy=y(p.y), r=6.0, fill=fill, class_="point"))
        parts.append(tag("text", p.label, x=at_x, y=at_y, text_anchor=anchor, class_="name"))
    parts.append(_colour_key(width - 62, 60, 200, low, high, colour_title))
    best = ", ".join(p.label for p in shown)
    description = f"{len(shown)} arms: {best}. The same numbers stand in the main table."
    title = f"{y_title} against {x_title}, coloured by {colour_title}"
    return chart(width, height, title, description, *parts, class_="chart wide")


def _colour_key(left: float, top: float, height: float, low: float, high: float, title: str) -> Markup:
    steps = 40
    parts = [tag("text", title, x=left - 2, y=top - 12, class_="label")]
    for i in range(steps):
        at = top + height * i / steps
        colour = sequential(1 - (i + 0.5) / steps)
        parts.append(tag("rect", x=left, y=at, width=14.0, height=height / steps + 0.5, fill=colour))
    for part in (0.0, 0.5, 1.0):
        value = low + (high - low) * part
        parts.append(tag("text", tick(round(value, 3)), x=left + 20, y=top + height * (1 - part) + 4, class_="tick"))
    return Markup("").join(parts)


def budget_curves(curves: Sequence[Curve], y_title: str, reference: float | None = None) -> Markup:
    """One quantity over the kept fraction, a line per selector, labelled at its right end; Full is the dashed line."""
    width, height = 366.0, 270.0
    values = [v for c in curves for v in c.y if math.isfinite(v)]
    if reference is not None and math.isfinite(reference):
        values.append(reference)
    name_room = min(130.0, 12 + CHARACTER * max(len(c.label) for c in curves))
    x = Scale(*padded([v for c in curves for v in c.x]), 52, width - name_room)
    y = Scale(*padded(values), height - 50, 34)
    parts = [axes(x, y, "keep", y_title, x_ticks=4, y_ticks=4)]
    if reference is not None and math.isfinite(reference):
        parts.append(tag("line", x1=x.start, x2=x.end, y1=y(reference), y2=y(reference), class_="reference"))
        below = y(reference) - y.end < 14  # No room between the line and the chart's title.
        parts.append(tag("text", "Full", x=x.start + 4, y=y(reference) + (13 if below else -5), class_="name"))
    parts += labelled_lines(curves, x, y)
    description = "; ".join(
        f"{c.label} from {format_value(c.y[0], 'score')} at {tick(c.x[0])} "
        f"to {format_value(c.y[-1], 'score')} at {tick(c.x[-1])}"
        for c in curves
    )
    return chart(width, height, f"{y_title} over the kept fraction", description, *parts)


def labelled_lines(curves: Sequence[Curve], x: Scale, y: Scale) -> list[Markup]:
    """Lines with markers, each named at its right end."""
    parts = []
    ends = _label_heights([(x(c.x[-1]), y(c.y[-1]) + 4) for c in curves], y.end, y.start)
    for place, (curve, end) in enumerate(zip(curves, ends, strict=True)):
        i = place if curve.style is None else curve.style
        colour = QUALITATIVE[i % len(QUALITATIVE)]
        route = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(curve.x, curve.y, strict=True))
        dash = None if i < len(QUALITATIVE) else "5 3"
        parts.append(tag("polyline", points=route, fill="none", stroke=colour, stroke_width=2.0, stroke_dasharray=dash))
        parts += [_marker(i, x(a), y(b), colour) for a, b in zip(curve.x, curve.y, strict=True)]
        parts.append(tag("text", curve.label, x=x(curve.x[-1]) + 9, y=end, class_="name"))
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


def reliability(name: str, probability: np.ndarray, positive: np.ndarray, bins: int = 10) -> Markup:
    """Observed share of yes-labels against the model's probability of yes, sigmoid(margin); area is the bin's count."""
    size, left, top = 176.0, 34.0, 26.0
    x, y = Scale(0, 1, left, size - 8), Scale(0, 1, size - 8, top)
    parts = [tag("text", name, x=left, y=14.0, class_="name strong")]
    for value in (0.0, 0.5, 1.0):
        parts.append(tag("line", x1=x.start, x2=x.end, y1=y(value), y2=y(value), class_="grid"))
        parts.append(tag("line", x1=x(value), x2=x(value), y1=y.start, y2=y.end, class_="grid"))
        parts.append(tag("text", tick(value), x=left - 6, y=y(value) + 4, text_anchor="end", class_="tick"))
    parts.append(tag("line", x1=x(0), y1=y(0), x2=x(1), y2=y(1), class_="reference"))
    rows = reliability_bins(probability, positive, bins)
    for mean, observed, count in rows:
        radius = 2.0 + 9.0 * math.sqrt(count / max(1, len(probability)))
        words = f"probability {mean:.2f}: {observed:.2f} of {count} are yes"
        parts.append(tag("circle", tag("title", words), cx=x(mean), cy=y(observed), r=radius, class_="bin"))
    description = "; ".join(
        f"{mean:.2f} predicted, {observed:.2f} observed, n {count}" for mean, observed, count in rows
    )
    return chart(size, size, f"Reliability of {name}", description or "no rows", *parts, class_="chart small")


def reliability_bins(probability: np.ndarray, positive: np.ndarray, bins: int = 10) -> list[tuple[float, float, int]]:
    """(mean probability, share of yes, count) of each equal-width bin that holds anything."""
    index = np.minimum((probability * bins).astype(int), bins - 1)
    counts = np.bincount(index, minlength=bins)
    means = np.bincount(index, probability, bins)
    yes = np.bincount(index, positive.astype(float), bins)
    return [(float(means[b] / counts[b]), float(yes[b] / counts[b]), int(counts[b])) for b in range(bins) if counts[b]]


def curves_by_selector(rows: Sequence[Mapping[str, object]], metric: str, name: str = "selector") -> list[Curve]:
    """Arms of the same selector joined over their budgets; selectors with a single budget have no curve."""
    grouped: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        value, keep = float(str(row[metric])), float(str(row["keep"]))
        if math.isfinite(value) and math.isfinite(keep):
            grouped.setdefault(str(row[name]), []).append((keep, value))
    return [
        Curve(label, [k for k, _ in sorted(pairs)], [v for _, v in sorted(pairs)])
        for label, pairs in grouped.items()
        if len({k for k, _ in pairs}) > 1
    ]
