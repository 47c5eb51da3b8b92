"""Charts: named, escaped, complete, nothing on top of anything; colours that can be read in every theme."""

import math
import re
from itertools import pairwise, product
from xml.etree import ElementTree

import numpy as np
import pytest

from sightline.report import charts
from sightline.report.page import HERE
from sightline.report.svg import CHARACTER, Scale, padded, place_labels, sequential, spaced_out, tag

SVG = "{http://www.w3.org/2000/svg}"


def test_frontier_is_named_escaped_and_complete_and_arms_that_pile_up_share_one_label() -> None:
    points = [
        charts.FrontierPoint("full", 1.0, 0.8, 0.2, None, (0.75, 0.85), "diamond"),
        charts.FrontierPoint("<b>&", 0.6, 0.79, 0.25, (0.5, 0.7), None),
        charts.FrontierPoint("no region", math.nan, 0.7, 0.1),
    ]
    root = ElementTree.fromstring(str(charts.frontier(points, "PosECR", "Accuracy", "hFPR")))
    assert root.find(f"{SVG}title").text == "Accuracy against PosECR, coloured by hFPR"  # type: ignore[union-attr]
    assert root.find(f"{SVG}desc").text.startswith("2 arms")  # type: ignore[union-attr]
    assert [t.text for t in root.iter(f"{SVG}text") if t.get("class") == "name"] == ["full", "<b>&"]
    assert len([c for c in root.iter(f"{SVG}circle") if c.get("class") == "point"]) == 1
    assert "Accuracy 0.790, PosECR 0.600, hFPR 0.250" in "".join(root.itertext())
    points = [charts.FrontierPoint(f"arm{i}", 0.999 + i / 10_000, 0.97 + i / 5_000, 0.1) for i in range(5)]
    points.append(charts.FrontierPoint("apart", 0.3, 0.8, 0.2))
    *pile, apart = names(charts.frontier(points, "PosECR", "Accuracy", "hFPR"))
    assert [t.text for t in pile] == [f"arm{i}" for i in range(5)]
    assert len({(t.get("x"), t.get("text-anchor")) for t in pile}) == 1, "one block of lines"
    heights = [float(t.get("y", "0")) for t in pile]
    assert {round(b - a, 6) for a, b in pairwise(heights)} == {13.0}
    assert apart.text == "apart"


def test_budget_curves_stay_inside_label_each_line_and_need_two_budgets() -> None:
    curves = [charts.Curve("target", [0.1, 0.5], [0.6, 0.8]), charts.Curve("random", [0.1, 0.5], [0.5, 0.79])]
    root = ElementTree.fromstring(str(charts.budget_curves(curves, "Accuracy", 0.85)))
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for line in root.iter(f"{SVG}polyline"):
        for x, y in (map(float, pair.split(",")) for pair in line.get("points", "").split()):
            assert 0 <= x <= width
            assert 0 <= y <= height
    heights = [float(t.get("y", "0")) for t in root.iter(f"{SVG}text") if t.text in ("target", "random")]
    assert abs(heights[0] - heights[1]) >= 12
    rows = [
        {"selector": "target", "keep": 0.5, "accuracy": 0.8},
        {"selector": "target", "keep": 0.3, "accuracy": 0.7},
        {"selector": "grid", "keep": 0.3, "accuracy": 0.6},
        {"selector": "random", "keep": 0.3, "accuracy": math.nan},
    ]
    assert charts.curves_by_selector(rows, "accuracy") == [charts.Curve("target", [0.3, 0.5], [0.7, 0.8])]


def test_reliability_bins_are_means_of_equal_width_bins_and_no_title_is_cut() -> None:
    probability, positive = np.array([0.05, 0.09, 0.95, 1.0]), np.array([False, True, True, True])
    assert charts.reliability_bins(probability, positive) == [
        (pytest.approx(0.07), 0.5, 2),
        (pytest.approx(0.975), 1.0, 2),
    ]
    text = str(charts.reliability("x<y", probability, positive))
    ElementTree.fromstring(text)
    assert "x&lt;y" in text
    name = "Qwen3-VL-8B-Instruct · protected_rel_hybrid:0.3:core=0.25"
    root = ElementTree.fromstring(str(charts.reliability(name, np.array([0.1, 0.9]), np.array([False, True]))))
    lines = [t for t in root.iter(f"{SVG}text") if t.get("class") == "name strong"]
    assert "".join(str(t.text) for t in lines) == name.replace(" · ", "")
    assert lines[0].text == "Qwen3-VL-8B-Instruct"
    for line in lines:
        assert float(line.get("x", "0")) + CHARACTER * len(line.text or "") <= float(root.get("width", "0"))


def test_labels_avoid_each_other_and_stay_in_the_frame() -> None:
    rng = np.random.default_rng(3)
    anchors = [(float(x), float(y), ["target:0.3"]) for x, y in rng.uniform(60, 500, (14, 2))]
    boxes = []
    for label in place_labels(anchors, (0, 0, 560, 560)):
        width = 64.0
        left = label.x - {"start": 0.0, "middle": width / 2, "end": width}[label.anchor]
        boxes.append((left, label.y - 11, left + width, label.y + 3))
    for i, a in enumerate(boxes):
        assert a[0] >= 0
        assert a[2] <= 560
        for b in boxes[i + 1 :]:
            overlap = max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))
            assert overlap < 1


def names(chart: object) -> list[ElementTree.Element]:
    return [t for t in ElementTree.fromstring(str(chart)).iter(f"{SVG}text") if t.get("class") == "name"]


@pytest.mark.parametrize("size", [charts.WIDE, charts.NARROW])
def test_no_interval_runs_through_a_label_and_nothing_leaves_the_chart(size: tuple[float, float]) -> None:
    points = [
        charts.FrontierPoint("Full", 1.0, 0.97, 0.02, None, (0.96, 0.99), "diamond", "Full"),
        charts.FrontierPoint("target:0.3", 0.99, 0.965, 0.03, (0.98, 1.0), (0.95, 0.98), "circle", "box-free"),
        charts.FrontierPoint("random:0.3", 0.33, 0.855, 0.08, (0.29, 0.38), (0.82, 0.88), "circle", "box-free"),
        charts.FrontierPoint("grid:0.3", 0.29, 0.85, 0.08, (0.25, 0.33), (0.81, 0.88), "circle", "box-free"),
        charts.FrontierPoint("protected:0.3 (oracle)", 0.9, 0.9, 0.03, (0.8, 1.0), (0.85, 0.95), "triangle", "oracle"),
    ]
    chart = charts.frontier(points, "PosECR", "Accuracy", "hFPR", size)
    root = ElementTree.fromstring(str(chart))
    bars = [line for line in root.iter(f"{SVG}line") if line.get("class") == "bar"]
    assert len(bars) == 9
    assert {t.text for t in names(chart)} == {p.label for p in points}
    for label in names(chart):
        width, y = CHARACTER * len(label.text or ""), float(label.get("y", "0"))
        anchored = {"start": 0.0, "middle": width / 2, "end": width}[str(label.get("text-anchor"))]
        left, top, bottom = float(label.get("x", "0")) - anchored, y - 10, y + 2
        right = left + width
        assert left >= 0
        assert right <= size[0]
        for bar in bars:
            x1, x2, y1, y2 = (float(bar.get(key, "0")) for key in ("x1", "x2", "y1", "y2"))
            assert x2 < left or x1 > right or y2 < top or y1 > bottom, label.text
    shapes = [
        p.get("d", "")
        for p in root.iter(f"{SVG}path")
        if p.get("class") == "point" and p.find(f"{SVG}title") is not None
    ]
    assert sorted(shape.count("L") for shape in shapes) == [2, 3], "a triangle for the oracle, a diamond for Full"


def test_scales_ticks_spaced_labels_escaped_attributes_and_colours_that_rise_in_lightness() -> None:
    scale = Scale(0.5, 0.9, 0, 100)
    assert scale(0.7) == pytest.approx(50)
    assert scale.ticks(4) == [0.5, 0.6, 0.7, 0.8, 0.9]
    assert padded([]) == (0.0, 1.0)
    low, high = padded([0.62, 0.71])
    assert low < 0.62
    assert high > 0.71
    assert padded([0.0, 1.0]) == (0.0, 1.0)
    moved = spaced_out([50.0, 51.0, 10.0, 99.0], 13, 0, 100)
    assert moved[2] < moved[0] < moved[1] < moved[3] <= 100
    ordered = sorted(moved)
    assert min(b - a for a, b in pairwise(ordered)) >= 13 - 1e-9
    assert str(tag("a", "<", href='"><script>')) == '<a href="&#34;&gt;&lt;script&gt;">&lt;</a>'

    def lightness(colour: str) -> float:
        r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    steps = [lightness(sequential(v)) for v in np.linspace(0, 1, 21)]
    assert all(b > a for a, b in pairwise(steps))
    assert re.fullmatch("#[0-9a-f]{6}", sequential(2.0))


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_has_enough_contrast_in_every_theme() -> None:
    css = (HERE / "report.css").read_text(encoding="utf-8")
    light, dark, printed = (
        dict(re.findall(r"--([a-z-]+):\s*(#[0-9a-f]{3,6})", block))
        for block in (
            css[: css.index("@media")],
            css[css.index("prefers-color-scheme: dark") : css.index("* { box-sizing")],
            css[css.index("@media print") :],
        )
    )
    for colours in (light, light | dark, light | printed):
        for text, paper in product(("ink", "soft", "accent", "good", "bad"), ("paper", "panel")):
            high, low = sorted((luminance(colours[text]), luminance(colours[paper])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, f"{text} on {paper}"
