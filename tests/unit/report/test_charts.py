from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from sightline.report.charts import (
    Curve,
    FrontierPoint,
    budget_curves,
    curves_by_selector,
    frontier,
    reliability,
    reliability_bins,
)
from sightline.report.svg import Scale, padded, place_labels, sequential, spaced_out, tag

SVG = "{http://www.w3.org/2000/svg}"


def test_frontier_is_named_escaped_and_complete() -> None:
    points = [
        FrontierPoint("full", 1.0, 0.8, 0.2, None, (0.75, 0.85), True),
        FrontierPoint("<b>&", 0.6, 0.79, 0.25, (0.5, 0.7), None),
        FrontierPoint("no region", math.nan, 0.7, 0.1),
    ]
    root = ElementTree.fromstring(str(frontier(points, "PosECR", "Accuracy", "hFPR")))
    assert root.find(f"{SVG}title").text == "Accuracy against PosECR, coloured by hFPR"  # type: ignore[union-attr]
    assert root.find(f"{SVG}desc").text.startswith("2 arms")  # type: ignore[union-attr]
    assert [t.text for t in root.iter(f"{SVG}text") if t.get("class") == "name"] == ["full", "<b>&"]
    assert len([c for c in root.iter(f"{SVG}circle") if c.get("class") == "point"]) == 1
    assert "Accuracy 0.790, PosECR 0.600, hFPR 0.250" in "".join(root.itertext())


def test_budget_curves_stay_inside_and_label_each_line() -> None:
    curves = [Curve("target", [0.1, 0.5], [0.6, 0.8]), Curve("random", [0.1, 0.5], [0.5, 0.79])]
    root = ElementTree.fromstring(str(budget_curves(curves, "Accuracy", 0.85)))
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for line in root.iter(f"{SVG}polyline"):
        for x, y in (map(float, pair.split(",")) for pair in line.get("points", "").split()):
            assert 0 <= x <= width
            assert 0 <= y <= height
    heights = [float(t.get("y", "0")) for t in root.iter(f"{SVG}text") if t.text in ("target", "random")]
    assert abs(heights[0] - heights[1]) >= 12


def test_a_selector_with_one_budget_has_no_curve() -> None:
    rows = [
        {"selector": "target", "keep": 0.5, "accuracy": 0.8},
        {"selector": "target", "keep": 0.3, "accuracy": 0.7},
        {"selector": "grid", "keep": 0.3, "accuracy": 0.6},
        {"selector": "random", "keep": 0.3, "accuracy": math.nan},
    ]
    assert curves_by_selector(rows, "accuracy") == [Curve("target", [0.3, 0.5], [0.7, 0.8])]


def test_reliability_bins_are_means_of_equal_width_bins() -> None:
    probability, positive = np.array([0.05, 0.09, 0.95, 1.0]), np.array([False, True, True, True])
    assert reliability_bins(probability, positive) == [(pytest.approx(0.07), 0.5, 2), (pytest.approx(0.975), 1.0, 2)]
    text = str(reliability("x<y", probability, positive))
    ElementTree.fromstring(text)
    assert "x&lt;y" in text


def test_labels_avoid_each_other_and_stay_in_the_frame() -> None:
    rng = np.random.default_rng(3)
    anchors = [(float(x), float(y), "target:0.3") for x, y in rng.uniform(60, 500, (14, 2))]
    boxes = []
    for x, y, anchor, _ in place_labels(anchors, (0, 0, 560, 560)):
        width = 64.0
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        boxes.append((left, y - 11, left + width, y + 3))
    for i, a in enumerate(boxes):
        assert a[0] >= 0
        assert a[2] <= 560
        for b in boxes[i + 1 :]:
            overlap = max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))
            assert overlap < 1


def test_scale_and_ticks() -> None:
    scale = Scale(0.5, 0.9, 0, 100)
    assert scale(0.7) == pytest.approx(50)
    assert scale.ticks(4) == [0.5, 0.6, 0.7, 0.8, 0.9]
    assert padded([]) == (0.0, 1.0)
    low, high = padded([0.62, 0.71])
    assert low < 0.62
    assert high > 0.71
    assert padded([0.0, 1.0]) == (0.0, 1.0)


def test_labels_that_are_spaced_out_keep_order_gap_and_limits() -> None:
    moved = spaced_out([50.0, 51.0, 10.0, 99.0], 13, 0, 100)
    assert moved[2] < moved[0] < moved[1] < moved[3] <= 100
    ordered = sorted(moved)
    assert min(b - a for a, b in pairwise(ordered)) >= 13 - 1e-9


def test_colours_rise_in_lightness() -> None:
    def lightness(colour: str) -> float:
        r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    steps = [lightness(sequential(v)) for v in np.linspace(0, 1, 21)]
    assert all(b > a for a, b in pairwise(steps))
    assert re.fullmatch("#[0-9a-f]{6}", sequential(2.0))


def test_attributes_are_escaped() -> None:
    assert str(tag("a", "<", href='"><script>')) == '<a href="&#34;&gt;&lt;script&gt;">&lt;</a>'
