from __future__ import annotations

import re
from itertools import product

import pytest

from sightline.report.page import HERE

CSS = (HERE / "report.css").read_text(encoding="utf-8")


def theme(block: str) -> dict[str, str]:
    return {name: value.strip() for name, value in re.findall(r"--([a-z-]+):\s*(#[0-9a-f]{3,6})", block)}


LIGHT = theme(CSS[: CSS.index("@media")])
DARK = LIGHT | theme(CSS[CSS.index("prefers-color-scheme: dark") : CSS.index("* { box-sizing")])
PRINT = LIGHT | theme(CSS[CSS.index("@media print") :])


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", ["light", "dark", "print"])
def test_text_has_enough_contrast_in_every_theme(name: str) -> None:
    colours = {"light": LIGHT, "dark": DARK, "print": PRINT}[name]
    for text, paper in product(("ink", "soft", "accent", "good", "bad"), ("paper", "panel")):
        high, low = sorted((luminance(colours[text]), luminance(colours[paper])), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, f"{text} on {paper}"
