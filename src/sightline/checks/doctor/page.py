"""What doctor found, on a terminal and as a page."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import jinja2
import numpy as np
from markupsafe import Markup
from PIL import Image
from rich.table import Table
from rich.text import Text

from sightline.checks.doctor.examination import Examination, SeenPage, fact_lines, methods_by_reason, stage_words
from sightline.progress import SafeConsole
from sightline.report import page as report_page
from sightline.report.svg import tag
from sightline.version import __version__

# An examination on the console: one line a check, then the facts.


STYLES = {"ok": "green", "FAILED": "red", "n/a": "dim"}


def print_examination(found: Examination, console: SafeConsole) -> None:
    checks = Table(box=None, show_header=False, pad_edge=False)
    for check in found:
        checks.add_row(Text(check.mark, style=STYLES[check.mark]), Text(check.words))
    console.print(checks)
    if found.facts:
        print_facts(found, console)
    console.print(found.verdict)


def print_facts(found: Examination, console: SafeConsole) -> None:
    facts = Table(box=None, show_header=False, pad_edge=False)
    for name, words in fact_lines(found.facts):
        facts.add_row(Text(name, style="bold"), Text(words))
    stages = Table(box=None, show_header=False, pad_edge=False)
    for stage in found.facts["stages"]:
        stages.add_row(*stage_words(stage))
    facts.add_row(Text("stages", style="bold"), stages)
    selectors = found.facts["selectors"]
    for number, (answer, names) in enumerate(methods_by_reason(selectors).items()):
        title = "" if number else "selectors"
        facts.add_row(Text(title, style="bold"), Text(f"{answer} ({len(names)}): {', '.join(names)}"))
    console.print()
    console.print(facts)
    console.print()


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


def maps(seen: SeenPage) -> list[tuple[Markup, str]]:
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
    packed = io.BytesIO()
    small.save(packed, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(packed.getvalue()).decode()}"
