"""Every method on every model: which run, what each keeps, how long choosing takes, and why the others do not.

A method is run as ``sightline doctor`` runs it (``SmallImage``), twice: it counts as served where both times K tokens
are left as its budget says, masks and lineage fit each other, all numbers are finite and both masks are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sightline.answering.materialise import Trace
from sightline.arms import parse_arm
from sightline.backbones import Backbone, load_backbone
from sightline.backbones.clip import ClipSpace, clip_trouble
from sightline.backbones.loading import WITH_CLIP, Served, methods_that_run, served_by
from sightline.checks.doctor.cells import signal_rows
from sightline.checks.doctor.examination import ExaminedPage, drawn_image
from sightline.checks.doctor.methods import SIDE, WRONG_ROWS, SmallImage, reads_tower
from sightline.core.selection import PARITY_WORDS
from sightline.core.table import markdown_rows
from sightline.device.work import is_out_of_memory
from sightline.errors import SightlineError, named_line
from sightline.geometry.cells import Cells
from sightline.probes.images import stored_as
from sightline.selectors import SELECTORS

State = Literal["served", "refused", "FAILED"]


@dataclass(frozen=True)
class Tried:
    """One method on one model."""

    state: State
    reason: str = ""
    ms: float = 0.0
    """Signals and selection, the quicker time."""
    form: str = ""
    """Who published the form that ran, if that is not its first."""
    kept: Trace | None = None


@dataclass(frozen=True)
class TriedModel:
    """One model with every method on it."""

    name: str
    kind: str
    """Its type, and by which route it is served."""
    cells: Cells
    """(N, 4)"""
    methods: Mapping[str, Tried]


@dataclass(frozen=True)
class Matrix:
    budget: str
    size: tuple[int, int]
    columns: tuple[TriedModel, ...]

    @property
    def methods(self) -> list[str]:
        return methods()

    @property
    def failed(self) -> int:
        return sum(tried.state == "FAILED" for column in self.columns for tried in column.methods.values())


def methods() -> list[str]:
    """Every method that is no control, reference or oracle, those of other people first."""
    named = [name for name, kind in SELECTORS.items() if kind.role == "method"]
    return sorted(named, key=lambda name: (not SELECTORS.get(name).published_by_others(), name))


def run_matrix(
    models: Mapping[str, str],
    budget: str,
    image: Image.Image | None = None,
    *,
    clip: str | None = None,
    heads: Callable[[str], Mapping[str, Path]] = lambda model: {},
    dtype: str = "float32",
    device: str = "auto",
    tell: Callable[[str], None] = lambda line: None,
) -> Matrix:
    """Models by the name that they go by on the page; each is loaded, run and let go before the next.

    ``heads`` are the files of trained heads for a checkpoint, by method.
    """
    shown = (image or drawn_image()).copy()
    shown.thumbnail((SIDE, SIDE))
    columns = []
    for name, model in models.items():
        backbone = load_backbone(model, dtype=dtype, device=device)
        trouble = "it needs --clip" if clip is None else clip_trouble(clip, model)
        space = ClipSpace(clip, backbone.language.device) if clip is not None and not trouble else None
        columns.append(run_column(name, backbone, shown, budget, space or trouble, heads(model)))
        counts = Counter(tried.state for tried in columns[-1].methods.values())
        tell(f"{name}: " + ", ".join(f"{count} {state}" for state, count in sorted(counts.items(), reverse=True)))
    return Matrix(budget, shown.size, tuple(columns))


def run_column(
    name: str, backbone: Backbone, image: Image.Image, budget: str, clip: ClipSpace | str, heads: Mapping[str, Path]
) -> TriedModel:
    """``clip`` is the checkpoint for methods that need one, or why there is none."""
    served = Served.by(backbone)
    listed = {each: answer for each, answer in methods_that_run(served).items() if each in methods()}
    space = None if isinstance(clip, str) else clip
    for each in listed:
        if each in heads and listed[each].startswith("yes"):
            misfit = parse_arm(f"{each}:{budget}:head={heads[each]}").selector.head_mismatch(served.sizes)
            listed[each] = "yes" if misfit is None else misfit
        elif SELECTORS.get(each).needs_file:  # which is nobody's but its user's
            listed[each] = listed[each].replace("yes, with", "it needs")
    if isinstance(clip, str):
        listed = {each: clip if answer == WITH_CLIP else answer for each, answer in listed.items()}
    asked = [each for each, answer in listed.items() if answer.startswith("yes")]
    rows = signal_rows(ExaminedPage.of(backbone, image)) if backbone.no_cells is None else None
    found: dict[str, Tried] = {}
    with TemporaryDirectory() as folder:
        shown = SmallImage(backbone, image, Path(folder) / "masks.jsonl", budget, space, heads)
        shown.look_with(asked)
        for each in asked:
            arm = shown.arm(each)
            ran = backbone.form(arm.selector)
            wrong = rows is not None and not rows.passed and reads_tower(arm, backbone)
            tried = Tried("FAILED", WRONG_ROWS) if wrong else tried_twice(shown, each)
            found[each] = tried if ran is arm.selector else replace(tried, form=ran.form)
    for each, answer in listed.items():
        if each not in found:
            found[each] = Tried("refused", answer.removeprefix("no: "))
    route = served_by(backbone)
    kind = f"{backbone.model.config.model_type}, {route['images'].partition(' (')[0]}, {route['language']}"
    return TriedModel(name, kind, shown.encoded.cells, found)


def tried_twice(shown: SmallImage, name: str) -> Tried:
    try:
        first, second = shown.run(name), shown.run(name)
        if first is None or second is None:
            return Tried("refused", "so small an image cannot be shown smaller")
        if not same(first, second):
            raise SightlineError("asked again it keeps other tokens")
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return Tried("FAILED", named_line(error))
    return Tried("served", ms=min(each.signal_ms + each.select_ms for each in (first, second)), kept=second)


def same(first: Trace, second: Trace) -> bool:
    return np.array_equal(first.anchors, second.anchors) and np.array_equal(first.lineage, second.lineage)


# As a page of Markdown: how many run on each model, milliseconds of every method, and reasons by number.


def page(matrix: Matrix, picture: str | None) -> str:
    reasons: dict[str, int] = {}
    lines = [
        f"# Every method on every model, at {matrix.budget}",
        "",
        f"Every method ran twice on an image of {matrix.size[0]} x {matrix.size[1]} pixels: K tokens as the budget "
        "says, masks and lineage that fit each other, finite numbers, the same tokens both times.",
        "",
    ]
    others = {name for name in matrix.methods if SELECTORS.get(name).published_by_others()}
    models = []
    for column in matrix.columns:
        served = {name for name, tried in column.methods.items() if tried.state == "served"}
        counts = f"{len(served & others)} of {len(others)}", f"{len(served)} of {len(matrix.methods)}"
        models.append((column.name, column.kind, *counts))
    lines += [
        *markdown_rows(["model", "served by", "published methods", "all methods"], models),
        "",
        "Milliseconds of signals and selection, in italics of another form that is published; a number in "
        "brackets is the reason why it does not run. How the method stands to outputs recorded of its public code is "
        "last.",
        "",
    ]
    methods = (
        (name, *(_cell(column.methods[name], reasons) for column in matrix.columns), SELECTORS.get(name).parity)
        for name in matrix.methods
    )
    lines += markdown_rows(["method", *(column.name for column in matrix.columns), "recorded outputs"], methods)
    promised = {SELECTORS.get(name).parity for name in matrix.methods}
    lines += ["", *(f"- `{parity}`: {words}" for parity, words in PARITY_WORDS.items() if parity in promised)]
    lines += ["", *(f"{number}. {reason}" for reason, number in reasons.items())]
    forms = {name: tried.form for column in matrix.columns for name, tried in column.methods.items() if tried.form}
    if forms:
        lines += ["", "Other forms, for models that lack what the first form reads:", ""]
        lines += [f"- {name}: {forms[name]}" for name in sorted(forms)]
    if picture is not None:
        lines += [
            "",
            "Cells that a method keeps (dark) and mixes into what it keeps (light); in an empty frame it does not run.",
            "",
            f"![Cells that every method keeps on every model]({picture})",
        ]
    return "\n".join(lines) + "\n"


def _cell(tried: Tried, reasons: dict[str, int]) -> str:
    if tried.state == "served":
        return f"*{tried.ms:.1f}*" if tried.form else f"{tried.ms:.1f}"
    number = reasons.setdefault(tried.reason, len(reasons) + 1)
    return f"({number})" if tried.state == "refused" else f"**FAILED** ({number})"


# As one sheet of small multiples: a row for each method, a column for each model, kept cells filled.

TILE, MARGIN, TITLE, LINE = 72, 8, 120, 13
"""Pixels: longer side of a picture, between pictures, of the methods' names, of a line of text."""
LETTERS = 12
"""Of a line above a column."""
INK, EMPTY, WRONG = (40, 44, 52), (250, 250, 250), (176, 65, 62)
SHADES = ((222, 226, 231), (150, 193, 228), (11, 95, 165))
"""Of cells that are seen, mixed into what is kept, kept."""


def sheet(matrix: Matrix) -> bytes:
    """PNG. Kept cells are dark, those mixed into them light; the frame of a method that is refused is empty."""
    scale = TILE / max(matrix.size)
    wide, high = (round(edge * scale) for edge in matrix.size)
    across, down = wide + MARGIN, high + MARGIN
    titles = [_lines(column.name) for column in matrix.columns]
    head = 2 * MARGIN + LINE * max(map(len, titles), default=1)
    size = (TITLE + across * len(titles), head + down * len(matrix.methods))
    drawn = Image.new("RGB", size, (255, 255, 255))
    draw, font = ImageDraw.Draw(drawn), ImageFont.load_default(11)
    for place, (column, lines) in enumerate(zip(matrix.columns, titles, strict=True)):
        left = TITLE + place * across
        for number, words in enumerate(lines):
            draw.text((left, MARGIN + LINE * number), words, fill=INK, font=font)
        for row, name in enumerate(matrix.methods):
            _draw(draw, (left, head + row * down), (wide, high), column.cells, column.methods[name])
    for row, name in enumerate(matrix.methods):
        draw.text((MARGIN, head + row * down + high / 2), name, fill=INK, font=font, anchor="lm")
    return stored_as(drawn.quantize(32), "PNG", optimize=True)


def _lines(name: str) -> list[str]:
    """A name in lines short enough for its column."""
    lines = [""]
    for part in name.replace("-", "_").split("_"):
        if lines[-1] and len(lines[-1]) + len(part) >= LETTERS:
            lines.append("")
        lines[-1] += f"_{part}" if lines[-1] else part
    return lines


def _draw(
    draw: ImageDraw.ImageDraw, corner: tuple[int, int], size: tuple[int, int], cells: Cells, tried: Tried
) -> None:
    """One picture: what the model sees, and on it what was kept."""
    left, top = corner
    right, bottom = left + size[0], top + size[1]
    draw.rectangle((left, top, right, bottom), outline=SHADES[0], fill=EMPTY)
    if tried.state == "FAILED":
        draw.line((left, top, right, bottom), fill=WRONG, width=2)
    if tried.kept is None or len(tried.kept.lineage) != len(cells):
        return
    edges = np.clip(cells, 0.0, 1.0) * np.tile(size, 2) + np.tile(corner, 2)
    shade = tried.kept.lineage.astype(int) + tried.kept.anchors
    for token in np.argsort(shade, kind="stable"):
        x1, y1, x2, y2 = edges[token].round().tolist()
        if x1 < x2 and y1 < y2:
            draw.rectangle((x1, y1, x2, y2), fill=SHADES[shade[token]])
