"""The first picture of the report, drawn without scripts so that it also stands in print and in a mail preview."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from sightline.analysis.threshold_rules import shown
from sightline.report.overlay import DROPPED, MERGED, OUTSIDE, cell_path
from sightline.report.svg import tag
from sightline.report.table import format_value
from sightline.store.load import unpack_mask

FAINT = {"stroke_opacity": 0.4, "stroke_width": 0.6}
"""Borders of kept cells: visible on the picture, never louder than it."""


@dataclass(frozen=True)
class Hero:
    """A case in full: the picture, the region magnified, a headline and a sentence."""

    picture: Markup
    inset: Markup
    headline: str
    words: str


def make_hero(packed: dict[str, Any]) -> Hero:
    """Draws the first case and takes its JPEG out of the packed data: the page carries every image once."""
    case = packed["cases"][0]
    panel = next(p for p in case["panels"] if p["arm"] == case["featured"])
    image = packed["images"][panel["image"]]
    width, height = image["w"], image["h"]
    cells = np.frombuffer(base64.b64decode(packed["cells"][panel["cells"]]), "<u2").reshape(-1, 4) / 65535
    kept = unpack_mask(base64.b64decode(panel["kept"]), len(cells))
    lineage = None if panel["lineage"] is None else unpack_mask(base64.b64decode(panel["lineage"]), len(cells))
    picture = _picture(image["jpeg"], width, height, cells, kept, lineage, case["regions"], _alternative(case, panel))
    image["jpeg"] = None
    inset = _inset(case["regions"], width, height) if case["regions"] else Markup("")
    headline, words = _sentences(case, panel, packed["arms"][panel["arm"]]["label"])
    return Hero(picture, inset, headline, words)


def _picture(
    jpeg: str,
    width: int,
    height: int,
    cells: np.ndarray,
    kept: np.ndarray,
    lineage: np.ndarray | None,
    regions: list[list[float]],
    alternative: str,
) -> Markup:
    everything = np.ones(len(cells), dtype=bool)
    lit = cell_path(cells, kept, width, height)
    layers = [
        tag("rect", width=width, height=height, fill=_grey(OUTSIDE)),
        tag("path", d=cell_path(cells, everything, width, height), fill=_grey(DROPPED)),
    ]
    if lineage is not None:
        layers.append(tag("path", d=cell_path(cells, lineage, width, height), fill=_grey(MERGED)))
    layers.append(tag("path", d=lit, fill="#000"))
    frame = {"x": 0, "y": 0, "width": width, "height": height}
    thin = {"fill": "none", "vector_effect": "non-scaling-stroke"}
    drawing = [
        tag("mask", *layers, id="hero-mask", maskUnits="userSpaceOnUse", **frame),
        tag("image", href=f"data:image/jpeg;base64,{jpeg}", width=width, height=height, preserveAspectRatio="none"),
        tag("rect", width=width, height=height, fill="#000", mask="url(#hero-mask)"),
        tag("path", d=cell_path(cells, kept, width, height, join=False), stroke="#fff", **thin, **FAINT),
    ]
    for x1, y1, x2, y2 in regions:
        box = {"x": x1 * width, "y": y1 * height, "width": (x2 - x1) * width, "height": (y2 - y1) * height}
        drawing.append(tag("rect", stroke="#000", stroke_width=4, **box, **thin))
        drawing.append(tag("rect", stroke="#ff8a00", stroke_width=2, **box, **thin))
    group = tag("g", *drawing, id="hero-drawing")
    return tag(
        "svg",
        group,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=alternative,
    )


def _inset(regions: list[list[float]], width: int, height: int) -> Markup:
    """The region with its surroundings, from the same drawing: ``use`` costs a few bytes, not a second image."""
    boxes = np.asarray(regions, dtype=float) * [width, height, width, height]
    left, top = boxes[:, :2].min(axis=0)
    right, bottom = boxes[:, 2:].max(axis=0)
    wide = min(float(width), max((right - left) * 1.8, (bottom - top) * 6, width / 5))
    tall = min(float(height), max(wide / 3, (bottom - top) * 1.6))
    x = min(max(0.0, (left + right - wide) / 2), width - wide)
    y = min(max(0.0, (top + bottom - tall) / 2), height - tall)
    return tag(
        "svg",
        tag("use", href="#hero-drawing"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"{x:.2f} {y:.2f} {wide:.2f} {tall:.2f}",
        class_="inset",
        aria_hidden="true",
    )


def _alternative(case: dict[str, Any], panel: dict[str, Any]) -> str:
    return (
        f"{case['question']} {panel['evidence_kept']} of {panel['evidence_cells']} evidence cells kept, "
        f"{panel['keep']:.0%} of all cells."
    )


def _sentences(case: dict[str, Any], panel: dict[str, Any], arm: str) -> tuple[str, str]:
    verdict = "right" if panel["correct"] else "wrong"
    margin = "" if panel["margin"] is None else f", margin {format_value(panel['margin'], 'signed')}"
    if panel["threshold"]:
        margin += f" at t = {shown(panel['threshold'])}"
    asked = case["target"] or case["question"]
    kept = f"with {panel['evidence_kept']} of {panel['evidence_cells']} evidence cells kept"
    if panel["evidence_cells"] == 0:
        kept = "although its evidence lies outside every cell" if case["regions"] else "without an annotated region"
    words = f"{arm} is asked for “{asked}” and says {panel['predicted']} ({verdict}{margin}) {kept}."
    if panel["unsupported"]:
        return "Unsupported: correct, but the evidence is gone.", words
    if panel["flip"]:
        return "The answer flips.", words
    if panel["low"]:
        return "Little of the evidence is left.", words
    return "A case.", words


def _grey(darkness: float) -> str:
    return f"rgb({darkness:.0%},{darkness:.0%},{darkness:.0%})"
