"""What is examined: a page that is asked about, what each check says of it, and how that is shown."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import torch
from markupsafe import Markup
from PIL import Image, ImageDraw
from rich.text import Text
from torch import Tensor

from sightline.answering.answerer import Answerer
from sightline.answering.materialise import ArmPass
from sightline.answering.scorers import Scorer
from sightline.answering.scorers.spoken import Generation
from sightline.arms import parse_arm
from sightline.backbones import Backbone
from sightline.backbones.found_cells import FoundCells, find_cells
from sightline.backbones.general import PIXELS as PIXEL_VALUES
from sightline.backbones.general import General, rows
from sightline.core.prefix import NO_CELLS, Encoded, Prefix, Prompt
from sightline.core.probe import Probe
from sightline.core.selection import PositionPolicy
from sightline.core.table import print_rows
from sightline.core.text import finite
from sightline.geometry.cells import Cells
from sightline.probes.images import stored_as
from sightline.progress import SafeConsole
from sightline.report import page as report_page
from sightline.report.svg import tag
from sightline.version import __version__

# What doctor found: checks that pass or fail, facts that do neither, and what a person should look at.


@dataclass(frozen=True)
class Check:
    passed: bool
    words: str
    measured: Mapping[str, Any] = field(default_factory=dict)
    """The figures in the words, as JSON can say them."""
    name: str = ""
    """What the check is called wherever machines read it."""
    applies: bool = True
    """Whether this model has what is asked about; a check that does not apply has not failed."""

    @property
    def mark(self) -> str:
        return ("ok" if self.passed else "FAILED") if self.applies else "n/a"


@dataclass(frozen=True)
class LitTokens:
    """What one word on the page changes."""

    page: Image.Image
    """With the word on it."""
    box: tuple[float, float, float, float]
    """Of the word, in fractions of the page."""
    change: np.ndarray
    """(N,) length of the difference between each token with and without the word."""


@dataclass(frozen=True)
class PageLayout:
    """The page as the model cuts it up."""

    page: Image.Image
    cells: Cells
    """(N, 4)"""
    layout: tuple[tuple[int, int], ...]
    lit: LitTokens | None
    """None where no word could be drawn."""


@dataclass(frozen=True)
class Examination(Sequence[Check]):
    """All checks in their order; ``facts`` by name, as JSON can say them."""

    checks: tuple[Check, ...]
    facts: Mapping[str, Any]
    seen: PageLayout | None = None

    def __getitem__(self, index: Any) -> Any:
        return self.checks[index]

    def __len__(self) -> int:
        return len(self.checks)

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    @property
    def failed(self) -> int:
        return sum(not check.passed for check in self.checks)

    @property
    def verdict(self) -> str:
        made = sum(check.applies for check in self.checks)
        if self.failed:
            return f"{self.failed} of {made} checks failed: rows from this model would not be trustworthy"
        return f"all {made} checks passed" + ("" if made == len(self) else f", {len(self) - made} do not apply")

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file; docs/doctor.md names the keys."""
        return {
            "sightline": __version__,
            "passed": self.failed == 0,
            "checks": {
                check.name: {
                    "passed": check.passed if check.applies else None,
                    "words": check.words,
                    "measured": finite(dict(check.measured)),
                }
                for check in self.checks
            },
            **self.facts,
        }


def declares_cells(backbone: Backbone) -> bool:
    return not isinstance(backbone, General) or type(backbone).cells is not General.cells


# An encoded page and a question about it, on the path that every audit takes.

PROBE = Probe(
    id="doctor", image="page.png", image_id="page", label="yes", target_text="INVOICE", source_text="INVOICE",
    question='Does the image contain the exact text "INVOICE"? Answer yes or no.', regions=(),
)  # fmt: skip
PRUNED = ("grid:0.34", "target:0.5", "random:0.2")
TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-2, torch.bfloat16: 5e-1}
"""Largest allowed logit difference by dtype; half precisions differ by kernel, not by path."""


@dataclass(frozen=True)
class ExaminedPage:
    backbone: Backbone
    image: Image.Image
    encoded: Encoded

    @staticmethod
    def of(backbone: Backbone, image: Image.Image) -> ExaminedPage:
        return ExaminedPage(backbone, image, backbone.encode([backbone.preprocess(image)])[0])

    @property
    def pruned(self) -> tuple[str, ...]:
        """Arms that make shorter prefixes; where tokens have no cells any will do."""
        return PRUNED if self.backbone.no_cells is None else PRUNED[-1:]

    def over(self, arm: str, scorer: Scorer, positions: PositionPolicy | None = None) -> ArmPass:
        return Answerer(self.backbone, scorer, positions=positions).over(parse_arm(arm), [PROBE], [self.encoded])

    def prefix(self, arm: str, positions: PositionPolicy | None = None) -> Prefix:
        """What is left for the language model, without continuations behind it."""
        return self.over(arm, Generation(), positions).prefix(0)

    @property
    def prompt(self) -> Prompt:
        return self.backbone.prompt(PROBE.question, PROBE.target_text)

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.backbone.language.dtype]

    @cached_property
    def found(self) -> FoundCells | None:
        """Cells by ramps, whatever the architecture declares; None where its features cannot be traced to pixels."""
        return found_in(self.backbone, self.image.size)


def found_in(backbone: Backbone, size: tuple[int, int]) -> FoundCells | None:
    """Cells by ramps of an image of this (width, height), whatever the class declares and whatever is remembered; None
    for a model without features."""
    if isinstance(backbone, General):
        features_of, tower = backbone.features, backbone.tower_module
        return find_cells(size, backbone.image_inputs, lambda given: features_of(given)[0], tower, backbone.pixels)
    model: Any = getattr(backbone.model, "model", backbone.model)
    if not hasattr(model, "get_image_features"):
        return None

    def features(inputs: Mapping[str, Tensor]) -> Tensor:
        on_device = {name: value.to(backbone.language.device) for name, value in inputs.items()}
        on_device[PIXEL_VALUES] = on_device[PIXEL_VALUES].to(backbone.language.dtype)
        output = model.get_image_features(**on_device, return_dict=True)
        return rows(getattr(output, "pooler_output", output))

    return find_cells(size, backbone.image_inputs, features, backbone.model)


def drawn_image() -> Image.Image:
    """A page-like image, wider than high so that a crop or a tiling shows."""
    image = Image.new("RGB", (640, 448), (246, 244, 238))
    draw = ImageDraw.Draw(image)
    for line in range(14):
        draw.text(
            (24, 20 + 30 * line),
            f"INVOICE {line:03d}   item {line * 7919 % 1000}   {line * 3.17:.2f}",
            fill=(30, 30, 40),
        )
    return image


# The facts of an examination in words, for the console and for the page alike.


def fact_lines(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(what, in words), one line each; stages and selectors have tables of their own."""
    image, positions, separators = facts["image"], facts["positions"], facts["separators"]
    width, height = image["size"]
    tokens = f"{image['tokens']} tokens" + ("" if not separators["count"] else f" in {image['slots']} slots")
    staying = ", ".join(f"{count} stay at {arm}" for arm, count in separators["staying"].items())
    cells = layout_words(image["layout"]) if image["layout"] else f"{NO_CELLS} ({image['no_cells']})"
    return [
        ("model", f"{facts['model']} ({facts['model_type']}), {facts['dtype']} on {facts['device']}"),
        ("served by", f"{facts['served_by']['images']}; language: {facts['served_by']['language']}"),
        ("image", f"{width} x {height} pixels become {tokens}, {cells}"),
        ("separators", f"{separators['count']}, {separators['policy']}; {staying}" if separators["count"] else "none"),
        ("positions", f"{positions['axes']} axis, usually {positions['usual']}".replace("3 axis", "3 axes")),
    ]


def layout_words(layout: Iterable[Iterable[int]]) -> str:
    """Rows x columns of every block, equal ones that follow each other counted."""
    blocks = [" x ".join(map(str, block)) for block in layout]
    counted = [(block, len(list(same))) for block, same in groupby(blocks)]
    return "layout " + ", ".join(block if times == 1 else f"{times} times {block}" for block, times in counted)


def stage_words(stage: Mapping[str, Any]) -> tuple[str, str, str]:
    """Name, milliseconds, and what memory grew by, "" where nobody measured it."""
    grown = stage["mib"]
    return stage["stage"], f"{stage['seconds'] * 1e3:.1f} ms", "" if grown is None else f"+{grown:.1f} MiB"


def methods_by_reason(selectors: Mapping[str, str]) -> dict[str, list[str]]:
    """``yes`` and ``yes, with --clip`` first, then reasons, each with the methods it holds for."""
    found: dict[str, list[str]] = {}
    for name, answer in sorted(selectors.items(), key=lambda item: item[1].startswith("no")):
        found.setdefault(answer, []).append(name)
    return found


# An examination on the console: one line a check, then the facts.


STYLES = {"ok": "green", "FAILED": "red", "n/a": "dim"}


def print_examination(found: Examination, console: SafeConsole) -> None:
    checks = [(Text(check.mark, style=STYLES[check.mark]), check.words) for check in found]
    print_rows(console, ["", ""], checks, header=False)
    if facts := _all_facts(found.facts):
        console.print()
        print_rows(console, ["", ""], [(Text(name, style="bold"), words) for name, words in facts], header=False)
        console.print()
    console.print(found.verdict)


def _all_facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(what, in words), with the lines of stages and selectors; of an engine, which has no stages, whatever it says."""
    if "stages" not in facts:
        told = []
        for name, value in facts.items():
            words = "; ".join(f"{each}: {why}" for each, why in value.items()) if isinstance(value, dict) else value
            told.append((name.replace("_", " "), str(words)))
        return told
    stages = [stage_words(stage) for stage in facts["stages"]]
    widths = [max(map(len, column)) for column in zip(*stages, strict=True)]
    timed = ("  ".join(map(str.ljust, stage, widths)).rstrip() for stage in stages)
    methods = methods_by_reason(facts["selectors"]).items()
    served = (f"{answer} ({len(names)}): {', '.join(names)}" for answer, names in methods)
    return [*fact_lines(facts), ("stages", "\n".join(timed)), ("selectors", "\n".join(served))]


# An examination as one self-contained page: checks, the page with its cells, stages, methods.

HERE = Path(__file__).parent
SIDE = 960
"""Pixels that the longer side of the picture may have on the page."""
COLOURS = ("#0b5fa5", "#b0413e", "#17663a", "#7a3fa0", "#a66a00", "#00747a")
"""Of blocks of tokens, in turn."""
LIT = "#ff2d95"


def render(found: Examination) -> str:
    facts = found.facts
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string((HERE / "doctor_page.html").read_text(encoding="utf-8"))
    return template.render(
        title=f"Doctor: {facts['model']}",
        version=__version__,
        css=Markup((report_page.HERE / "report.css").read_text(encoding="utf-8")),
        verdict=f"{found.verdict.capitalize()}.",
        facts=fact_lines(facts),
        checks=found.checks,
        maps=[] if found.seen is None else maps(found.seen),
        stages=[stage_words(stage) for stage in facts["stages"]],
        methods=list(methods_by_reason(facts["selectors"]).items()),
    )


def maps(seen: PageLayout) -> list[tuple[Markup, str]]:
    """Drawings with a caption each: every cell, and what one word lights up."""
    size = seen.page.size
    blocks = np.repeat(np.arange(len(seen.layout)), [rows * columns for rows, columns in seen.layout])
    cells = []
    for token, (cell, block) in enumerate(zip(seen.cells, blocks, strict=False)):
        colour = COLOURS[int(block) % len(COLOURS)]
        share = token / max(1, len(seen.cells) - 1)
        said = f"token {token}, block {int(block)}"
        cells.append(_cell(cell, size, said, fill=colour, fill_opacity=f"{0.04 + 0.3 * share:.2f}", stroke=colour))
    drawn = [(_picture(seen.page, cells, "Cells of all tokens"), CELLS)]
    if seen.lit is not None:
        most = float(seen.lit.change.max()) or 1.0
        lit = [
            _cell(cell, size, f"token {token}: {change:.3g}", fill=LIT, fill_opacity=f"{0.75 * change / most:.2f}")
            for token, (cell, change) in enumerate(zip(seen.cells, seen.lit.change, strict=True))
        ]
        frame = _cell(np.array(seen.lit.box), size, "the word", fill="none", stroke="var(--region)", stroke_width="3")
        drawn.append((_picture(seen.lit.page, [*lit, frame], "Tokens that a bright word changes"), WORD))
    return drawn


CELLS = (
    "Every token's cell, a colour for each block of the layout, deeper the later the token stands in the sequence. "
    "Blocks that see the same part of the image lie over each other; what no cell covers, the model does not see."
)
WORD = (
    "Of all the words tried the one that its tokens told worst: cells are filled by how much their tokens change when "
    "the outlined word is drawn, with attention silenced."
)


def _cell(cell: np.ndarray, size: tuple[int, int], said: str, **look: str) -> Markup:
    left, top, right, bottom = (float(edge) * size[place % 2] for place, edge in enumerate(cell))
    return tag(
        "rect",
        tag("title", said),
        x=f"{left:.2f}",
        y=f"{top:.2f}",
        width=f"{right - left:.2f}",
        height=f"{bottom - top:.2f}",
        **look,
    )


def _picture(image: Image.Image, drawing: list[Markup], label: str) -> Markup:
    width, height = image.size
    shown = tag("image", href=_embedded(image), width=str(width), height=str(height))
    svg = "http://www.w3.org/2000/svg"
    return tag("svg", shown, *drawing, xmlns=svg, viewBox=f"0 0 {width} {height}", role="img", aria_label=label)


def _embedded(image: Image.Image) -> str:
    small = image.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    return f"data:image/jpeg;base64,{base64.b64encode(stored_as(small, 'JPEG', quality=85)).decode()}"
