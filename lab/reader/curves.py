"""Training curves as one SVG file: losses above, accuracy below, over steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

WIDTH, HEIGHT, LEFT, RIGHT, GAP = 860, 250, 46, 96, 34
COLOURS = {
    "slots": "#0072b2",
    "align": "#009e73",
    "page": "#e69f00",
    "answer": "#d55e00",
    "spelling": "#cc79a7",
    "letters": "#56b4e9",
    "accuracy": "#222222",
    "exact": "#56b4e9",
}
Curves = Sequence[dict[str, float]]


def smooth(values: Sequence[float], window: int = 9) -> list[float]:
    """Centred running mean; shorter at the ends."""
    half = window // 2
    parts = [values[max(0, place - half) : place + half + 1] for place in range(len(values))]
    return [sum(part) / len(part) for part in parts]


def curves_svg(curves: Curves) -> str:
    """Losses (capped at 2), training accuracy, share of exact open answers; each smoothed over a few points."""
    last = max(entry["step"] for entry in curves)
    losses = _panel(curves, ("slots", "align", "page", "answer", "spelling", "letters"), last, 0.0, 2.0, 12)
    accuracy = _panel(curves, ("accuracy", "exact"), last, 0.0, 1.0, 12 + HEIGHT + GAP)
    height = 2 * HEIGHT + 2 * GAP + 30
    foot = f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{height - 8}" text-anchor="middle">step (of {last:,})</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{height}" fill="#fff"/>{losses}{accuracy}{foot}</svg>\n'
    )


def _panel(curves: Curves, names: Sequence[str], last: float, low: float, high: float, top: int) -> str:
    def across(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def up(value: float) -> float:
        return top + HEIGHT * (1 - (min(high, max(low, value)) - low) / (high - low))

    parts = [_rule(low + (high - low) * part / 4, up) for part in range(5)]
    for row, name in enumerate(names):
        points = [(entry["step"], entry[name]) for entry in curves if name in entry]
        if not points:
            continue
        values = smooth([value for _, value in points])
        line = " ".join(f"{across(step):.1f},{up(value):.1f}" for (step, _), value in zip(points, values, strict=True))
        colour = COLOURS[name]
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 8}" y="{top + 14 + 16 * row}" fill="{colour}">{name}</text>')
    return "".join(parts)


def _rule(value: float, up: Callable[[float], float]) -> str:
    y = up(value)
    return (
        f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    )
