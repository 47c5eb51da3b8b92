"""The first picture of the report, drawn without scripts so that it also stands in print and in a mail preview.

Where the runs hold one, it is a pair: an arm that kept the evidence and one that lost it, right alike. Below each
stands the evidence as the arm was left with it, and below both the evidence itself, undimmed.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from sightline.analysis.threshold_rules import shown
from sightline.geometry.surroundings import surroundings
from sightline.report.overlay import DROPPED, MERGED, OUTSIDE, cell_path
from sightline.report.svg import tag
from sightline.report.table import format_value
from sightline.store.load import unpack_mask

FAINT = {"stroke_opacity": 0.4, "stroke_width": 0.6}
"""Borders of kept cells: visible on the picture, never louder than it."""
FRAME_GAP = 0.012
"""How far the frame stays away from the evidence, in parts of the width that is shown: it never covers a letter."""


@dataclass(frozen=True)
class HeroPanel:
    """One arm: the image as its prefix holds it, the evidence magnified, and what it answered."""

    picture: Markup
    inset: Markup
    words: str


@dataclass(frozen=True)
class Hero:
    """A case in full: one arm or two, the evidence undimmed, a headline and a sentence."""

    panels: list[HeroPanel]
    undimmed: Markup
    headline: str
    words: str


def make_hero(packed: dict[str, Any]) -> Hero:
    """Draws the first case and takes its JPEG out of the packed data: the page carries every image once."""
    case = packed["cases"][0]
    shown = [arm for arm in (case["beside"], case["featured"]) if arm is not None]
    panels = [next(p for p in case["panels"] if p["arm"] == arm) for arm in shown]
    image = packed["images"][panels[0]["image"]]
    width, height = image["w"], image["h"]
    drawn = []
    for place, panel in enumerate(panels):
        photograph = tag("use", href="#hero-image") if place else _photograph(image, "hero-image")
        cells = np.frombuffer(base64.b64decode(packed["cells"][panel["cells"]]), "<u2").reshape(-1, 4) / 65535
        name = f"hero-seen-{place}"
        seen = tag("g", photograph, *_shade(panel, cells, width, height, f"{name}-mask"), id=name)
        alternative = _alternative(case, panel, packed["arms"][panel["arm"]]["label"])
        picture = _svg((0, 0, width, height), seen, *_frames(case["regions"], width, height, width), label=alternative)
        inset = _magnified(case["regions"], width, height, f"#{name}")
        drawn.append(HeroPanel(picture, inset, _panel_words(panel, packed["arms"][panel["arm"]]["label"])))
    image["jpeg"] = None
    featured = packed["arms"][case["featured"]]["label"]
    headline, words = _sentences(case, panels[-1], featured)
    if case["beside"] is not None:
        headline, words = _pair_sentences(case, panels, [packed["arms"][arm]["label"] for arm in shown])
    return Hero(drawn, _magnified(case["regions"], width, height, "#hero-image"), headline, words)


def _photograph(image: dict[str, Any], name: str) -> Markup:
    """The preview, and over it the evidence as sharp as the run kept it."""
    width, height = image["w"], image["h"]
    layers = [_jpeg(image["jpeg"], (0.0, 0.0, 1.0, 1.0), width, height)]
    layers += [_jpeg(detail["jpeg"], detail["box"], width, height) for detail in image["details"]]
    return tag("g", *layers, id=name)


def _jpeg(data: str, box: Any, width: int, height: int) -> Markup:
    x1, y1, x2, y2 = box
    return tag(
        "image",
        href=f"data:image/jpeg;base64,{data}",
        x=x1 * width,
        y=y1 * height,
        width=(x2 - x1) * width,
        height=(y2 - y1) * height,
        preserveAspectRatio="none",
    )


def _shade(panel: dict[str, Any], cells: np.ndarray, width: int, height: int, name: str) -> list[Markup]:
    """What darkens the photograph where cells were dropped, and the borders of those that were kept."""
    kept = unpack_mask(base64.b64decode(panel["kept"]), len(cells))
    everything = np.ones(len(cells), dtype=bool)
    layers = [
        tag("rect", width=width, height=height, fill=_grey(OUTSIDE)),
        tag("path", d=cell_path(cells, everything, width, height), fill=_grey(DROPPED)),
    ]
    if panel["lineage"] is not None:
        lineage = unpack_mask(base64.b64decode(panel["lineage"]), len(cells))
        layers.append(tag("path", d=cell_path(cells, lineage, width, height), fill=_grey(MERGED)))
    layers.append(tag("path", d=cell_path(cells, kept, width, height), fill="#000"))
    frame = {"x": 0, "y": 0, "width": width, "height": height}
    borders = cell_path(cells, kept, width, height, join=False)
    return [
        tag("mask", *layers, id=name, maskUnits="userSpaceOnUse", **frame),
        tag("rect", width=width, height=height, fill="#000", mask=f"url(#{name})"),
        tag("path", d=borders, stroke="#fff", fill="none", vector_effect="non-scaling-stroke", **FAINT),
    ]


def _frames(regions: list[list[float]], width: int, height: int, shown: float) -> list[Markup]:
    """The outlines of the regions, drawn around them; ``shown`` is how many pixels of the image are shown across."""
    gap = FRAME_GAP * shown
    thin = {"fill": "none", "vector_effect": "non-scaling-stroke"}
    found = []
    for x1, y1, x2, y2 in regions:
        box = {
            "x": x1 * width - gap,
            "y": y1 * height - gap,
            "width": (x2 - x1) * width + 2 * gap,
            "height": (y2 - y1) * height + 2 * gap,
        }
        found.append(tag("rect", stroke="#000", stroke_width=4, **box, **thin))
        found.append(tag("rect", stroke="#ff8a00", stroke_width=2, **box, **thin))
    return found


def _magnified(regions: list[list[float]], width: int, height: int, drawing: str) -> Markup:
    """The regions with their surroundings, from a drawing on the page: ``use`` costs a few bytes, not an image."""
    if not regions:
        return Markup("")
    x1, y1, x2, y2 = surroundings(regions, width, height)
    frames = _frames(regions, width, height, x2 - x1)
    return _svg((x1, y1, x2 - x1, y2 - y1), tag("use", href=drawing), *frames, class_="inset")


def _svg(view: tuple[float, float, float, float], *drawing: Markup, label: str = "", class_: str = "") -> Markup:
    named = {"role": "img", "aria_label": label} if label else {"aria_hidden": "true"}
    return tag(
        "svg",
        *drawing,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=" ".join(f"{value:.2f}" for value in view),
        class_=class_ or None,
        **named,
    )


def _alternative(case: dict[str, Any], panel: dict[str, Any], arm: str) -> str:
    return (
        f"{arm}: {case['question']} {panel['evidence_kept']} of {panel['evidence_cells']} evidence cells kept, "
        f"{panel['keep']:.0%} of all cells."
    )


def _panel_words(panel: dict[str, Any], arm: str) -> str:
    verdict = "right" if panel["correct"] else "wrong"
    margin = "" if panel["margin"] is None else f", margin {format_value(panel['margin'], 'signed')}"
    cells = f"{panel['evidence_kept']} of {panel['evidence_cells']} evidence cells"
    return f"{arm}: {panel['predicted']} ({verdict}{margin}), {cells}"


def _pair_sentences(case: dict[str, Any], panels: list[dict[str, Any]], arms: list[str]) -> tuple[str, str]:
    asked = f"Asked for “{case['target'] or case['question']}”"
    run, dot, own = arms[0].partition(" · ")
    if dot and arms[1].startswith(run + dot):
        asked, arms = f"{run}: {asked[0].lower()}{asked[1:]}", [own, arms[1].removeprefix(run + dot)]
    words = (
        f"{asked}, {arms[0]} and {arms[1]} both say {panels[0]['predicted']}, and both are right. "
        f"{arms[0]} kept {panels[0]['evidence_kept']} of {panels[0]['evidence_cells']} cells of the evidence, "
        f"{arms[1]} none: its answer is unsupported."
    )
    return "The same answer, with and without the evidence.", words


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
