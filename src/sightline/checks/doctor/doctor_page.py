"""An examination as one self-contained page: checks, the page with its cells, stages, methods."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import jinja2
import numpy as np
from markupsafe import Markup
from PIL import Image

from sightline import __version__
from sightline.checks.doctor.examination import Examination, SeenPage
from sightline.checks.doctor.fact_words import fact_lines, methods_by_reason, stage_words
from sightline.report import page as report_page
from sightline.report.svg import tag

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
    many = f"{found.failed} of {len(found)} checks failed: rows from this checkpoint would not be trustworthy."
    return template.render(
        title=f"Doctor: {facts['model']}",
        version=__version__,
        css=Markup((report_page.HERE / "report.css").read_text(encoding="utf-8")),
        verdict=many if found.failed else f"All {len(found)} checks passed.",
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
