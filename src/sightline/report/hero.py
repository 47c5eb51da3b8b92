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

from sightline.core.prefix import NO_CELLS
from sightline.core.table import format_value
from sightline.geometry.marks import DROPPED, MERGED, OUTSIDE, RegionMark, overlay, surroundings
from sightline.report.columns import listed
from sightline.report.svg import tag
from sightline.statistics.thresholds import shown
from sightline.store.shard_files import unpack_mask

__all__ = ["DROPPED", "MERGED", "OUTSIDE", "cell_path", "overlay"]

# The overlay of ``sightline.geometry`` as an SVG fragment, for pages that draw cells over an image themselves.


def cell_path(cells: np.ndarray, chosen: np.ndarray, width: int, height: int, *, join: bool = True) -> str:
    """SVG path data of the chosen cells in pixels; ``join`` makes one piece of neighbours in a raster row."""
    parts: list[str] = []
    run: list[float] | None = None
    scaled = np.asarray(cells, dtype=float) * [width, height, width, height]
    for x1, y1, x2, y2 in scaled[np.asarray(chosen, dtype=bool)]:
        near = run is not None and abs(run[2] - x1) < 0.05 and abs(run[1] - y1) < 0.05 and abs(run[3] - y2) < 0.05
        if join and near and run is not None:
            run[2] = x2
            continue
        if run is not None:
            parts.append(_rectangle(run))
        run = [x1, y1, x2, y2]
    if run is not None:
        parts.append(_rectangle(run))
    return "".join(parts)


def _rectangle(box: list[float]) -> str:
    x1, y1, x2, y2 = box
    return f"M{x1:.4g} {y1:.4g}H{x2:.4g}V{y2:.4g}H{x1:.4g}Z"


CASE = "A case."
MOST_ACCEPTED = 3
"""Accepted answers that a sentence names."""
FAINT = {"stroke_opacity": 0.4, "stroke_width": 0.6}
"""Borders of kept cells: visible on the picture, never louder than it."""
FRAME_GAP = 0.012
"""How far the frame stays away from the evidence, in parts of the width that is shown: it never covers a letter."""
MOST_MAGNIFIED = 0.8
"""Surroundings that are more of the image than this are the image once more."""
MOST_SIGNS = 160
"""Of a text that a sentence quotes: a page has many more."""
LETTER_SIDE = 0.045
"""Side of the square that holds the letter of a region's role, likewise."""


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
    lit: bool
    """Whether cells are lit and dimmed: a model without cells has none."""


def make_hero(packed: dict[str, Any], *, tells: bool = True) -> Hero:
    """Draws the first case and takes its JPEG out of the packed data: the page carries every image once.

    ``tells`` is whether answers can be read at all; else a flip is no news, and the headline names none.
    """
    case = packed["cases"][0]
    marks = [RegionMark(*packed["marks"][mark]) for mark in case["marks"]]
    shown = [arm for arm in (case["beside"], case["featured"]) if arm is not None]
    panels = [next(p for p in case["panels"] if p["arm"] == arm) for arm in shown]
    image = packed["images"][panels[0]["image"]]
    drawn = []
    for place, panel in enumerate(panels):
        photograph = tag("use", href="#hero-image") if place else _photograph(image, "hero-image")
        drawn.append(_hero_panel(packed, image, panel, photograph, f"hero-seen-{place}"))
    image["jpeg"] = None
    featured = packed["arms"][case["featured"]]["label"]
    headline, words = _sentences(case, panels[-1], featured)
    if case["beside"] is not None:
        headline, words = _pair_sentences(case, panels, [packed["arms"][arm]["label"] for arm in shown])
    undimmed = _magnified(case["regions"], marks, image["w"], image["h"], "#hero-image")
    named = ", ".join(f"{mark.letter}: {mark.words}" for mark in dict.fromkeys(marks) if mark.letter)
    words += f" Outlined are {named}." if named else ""
    return Hero(drawn, undimmed, headline if tells else CASE, words, not panels[0]["no_cells"])


def _photograph(image: dict[str, Any], name: str) -> Markup:
    """The preview, and over it the evidence as sharp as the run kept it."""
    layers = [(image["jpeg"], (0.0, 0.0, 1.0, 1.0)), *((each["jpeg"], each["box"]) for each in image["details"])]
    return tag("g", *(_jpeg(jpeg, box, image["w"], image["h"]) for jpeg, box in layers), id=name)


def _hero_panel(
    packed: dict[str, Any], image: dict[str, Any], panel: dict[str, Any], photograph: Markup, name: str
) -> HeroPanel:
    """What one arm saw of the first case, drawn under a name that its inset refers to, and what it said."""
    case, width, height = packed["cases"][0], image["w"], image["h"]
    label = packed["arms"][panel["arm"]]["label"]
    marks = [RegionMark(*packed["marks"][mark]) for mark in case["marks"]]
    cells = np.frombuffer(base64.b64decode(packed["cells"][panel["cells"]]), "<u2").reshape(-1, 4) / 65535
    shade = _shade(panel, cells, width, height, f"{name}-mask", image["veil"])
    boxes, known, dashes = case["regions"], marks, None
    if panel.get("lost") is not None:  # of a page that was written down: its texts are the evidence, all of them
        boxes, known, dashes = panel["lost"], [RegionMark(*packed["lost"])] * len(panel["lost"]), "5 3"
    elif panel.get("swapped_box"):
        boxes, known = [*boxes, panel["swapped_box"]], [*marks, RegionMark(*packed["swapped"])]
    frames = _frames(boxes, known, width, height, width, dashes)
    seen = tag("g", photograph, *shade, id=name)
    picture = _svg((0, 0, width, height), seen, *frames, label=_alternative(case, panel, label))
    inset = _magnified(case["regions"], marks, width, height, f"#{name}")
    kept = "no cells" if panel["no_cells"] else f"{panel['evidence_kept']} of {panel['evidence_cells']} evidence cells"
    verdict = f"{'right' if panel['correct'] else 'wrong'}{_margin_words(panel)}"
    return HeroPanel(picture, inset, f"{label}: {_said(panel)} ({verdict}), {kept}")


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


def _shade(panel: dict[str, Any], cells: np.ndarray, width: int, height: int, name: str, veil: str) -> list[Markup]:
    """What veils the photograph where cells were dropped, and the borders of those that were kept; nothing of a model
    without cells."""
    if not len(cells):
        return []
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
        tag("rect", width=width, height=height, fill=veil, mask=f"url(#{name})"),
        tag("path", d=borders, stroke="#fff", fill="none", vector_effect="non-scaling-stroke", **FAINT),
    ]


def _frames(
    regions: list[list[float]],
    marks: list[RegionMark],
    width: int,
    height: int,
    shown: float,
    dashes: str | None = None,
) -> list[Markup]:
    """The outlines of the regions, drawn around them, each with its letter above or below its first corner.

    ``shown`` is how many pixels of the image are shown across. Dashed outlines, of lines that stand close, touch them.
    """
    gap, side = 0.0 if dashes else FRAME_GAP * shown, LETTER_SIDE * shown
    thin = {"fill": "none", "vector_effect": "non-scaling-stroke"}
    found = []
    for (x1, y1, x2, y2), mark in zip(regions, marks, strict=True):
        box = {
            "x": x1 * width - gap,
            "y": y1 * height - gap,
            "width": (x2 - x1) * width + 2 * gap,
            "height": (y2 - y1) * height + 2 * gap,
        }
        found.append(tag("rect", stroke="#000", stroke_width=4, stroke_opacity=0.4 if dashes else None, **box, **thin))
        found.append(tag("rect", stroke=mark.colour, stroke_width=2, stroke_dasharray=dashes, **box, **thin))
        if mark.letter:
            above = y1 * height - gap - side
            left, top = box["x"], above if above > 0 else y2 * height + gap
            found.append(tag("rect", x=left, y=top, width=side, height=side, fill=mark.colour, stroke="#000"))
            middle = {"x": left + side / 2, "y": top + 0.78 * side, "text_anchor": "middle", "font_weight": 700}
            letter = tag("text", mark.letter, font_size=0.85 * side, font_family="sans-serif", fill="#000", **middle)
            found.append(letter)
    return found


def _magnified(regions: list[list[float]], marks: list[RegionMark], width: int, height: int, drawing: str) -> Markup:
    """The regions with their surroundings, from a drawing on the page: ``use`` costs a few bytes, not an image."""
    x1, y1, x2, y2 = surroundings(regions, width, height) if regions else (0, 0, width, height)
    if (x2 - x1) * (y2 - y1) > MOST_MAGNIFIED * width * height:
        return Markup("")
    frames = _frames(regions, marks, width, height, x2 - x1)
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


def _kept(panel: dict[str, Any]) -> str:
    return "an unknown share" if panel["keep"] is None else f"{panel['keep']:.0%}"


def _alternative(case: dict[str, Any], panel: dict[str, Any], arm: str) -> str:
    if panel["no_cells"]:
        return f"{arm}: {case['question']} {_kept(panel)} of all tokens, {NO_CELLS}."
    return (
        f"{arm}: {case['question']} {panel['evidence_kept']} of {panel['evidence_cells']} evidence cells kept, "
        f"{_kept(panel)} of all cells."
    )


def _margin_words(panel: dict[str, Any]) -> str:
    """How sure the arm was, behind its verdict."""
    if panel.get("score") is not None:
        return f", score {format_value(panel['score'], 'number')}, loss {format_value(panel['loss'], 'number')}"
    if panel["margin"] is None:
        return ""
    at = f" at t = {shown(panel['threshold'])}" if panel["threshold"] else ""
    return f", margin {format_value(panel['margin'], 'signed')}{at}"


def _said(panel: dict[str, Any]) -> str:
    """The answer; one in words is quoted."""
    if panel.get("score") is None:
        return str(panel["predicted"])
    return _quoted(panel["predicted"]) if panel["predicted"] else "nothing"


def _quoted(text: str) -> str:
    return f"“{text if len(text) <= MOST_SIGNS else f'{text[:MOST_SIGNS].rstrip()} …'}”"


def _asked(case: dict[str, Any]) -> str:
    """What was asked, within a sentence: a question in words is quoted whole."""
    if case["accepted"] is not None:
        return f"asked “{case['question']}”"
    return f"asked for “{case['target'] or case['question']}”"


def _pair_sentences(case: dict[str, Any], panels: list[dict[str, Any]], arms: list[str]) -> tuple[str, str]:
    asked = _asked(case)
    asked = f"{asked[0].upper()}{asked[1:]}"
    run, dot, own = arms[0].partition(" · ")
    if dot and arms[1].startswith(run + dot):
        asked, arms = f"{run}: {asked[0].lower()}{asked[1:]}", [own, arms[1].removeprefix(run + dot)]
    if not panels[1]["correct"]:
        words = (
            f"{asked}, {arms[0]} says {_said(panels[0])}, and is right. {arms[1]} kept none of the "
            f"{panels[1]['evidence_cells']} cells of the evidence and says {_said(panels[1])}."
        )
        return "The answer goes with its evidence.", words
    words = (
        f"{asked}, {arms[0]} and {arms[1]} both say {_said(panels[0])}, and both are right. "
        f"{arms[0]} kept {panels[0]['evidence_kept']} of {panels[0]['evidence_cells']} cells of the evidence, "
        f"{arms[1]} none: its answer is unsupported."
    )
    return "The same answer, with and without the evidence.", words


def _sentences(case: dict[str, Any], panel: dict[str, Any], arm: str) -> tuple[str, str]:
    verdict = "right" if panel["correct"] else "wrong"
    margin = _margin_words(panel)
    kept = f"with {panel['evidence_kept']} of {panel['evidence_cells']} evidence cells kept"
    if panel["no_cells"]:
        kept = f"with {_kept(panel)} of the tokens"
    elif panel["evidence_cells"] == 0:
        kept = "although its evidence lies outside every cell" if case["regions"] else "without an annotated region"
    words = f"{arm} is {_asked(case)} and says {_said(panel)} ({verdict}{margin}) {kept}."
    if panel.get("lost") is not None:
        lost = f"{len(panel['lost'])} of the page's {panel['texts']} texts are not in it: they are outlined."
        return "A page written down.", f"{words} {lost}"
    if panel["unsupported"]:
        return "Unsupported: correct, but the evidence is gone.", words
    if panel.get("confident"):
        return "Wrong, and sure of it.", f"{words} Accepted: {_accepted(case)}."
    if panel["flip"] and case["accepted"] is not None:
        return "The answer changes.", f"{words} Accepted: {_accepted(case)}."
    if panel["flip"]:
        return "The answer flips.", words
    if panel["low"]:
        return "Little of the evidence is left.", words
    return CASE, words


def _accepted(case: dict[str, Any]) -> str:
    return listed([_quoted(answer) for answer in case["accepted"]], MOST_ACCEPTED)


def _grey(darkness: float) -> str:
    return f"rgb({darkness:.0%},{darkness:.0%},{darkness:.0%})"
