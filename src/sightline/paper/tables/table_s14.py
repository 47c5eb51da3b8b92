"""Table S14: is the one substituted character kept, and is the word around it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from sightline.core.table import TableColumn
from sightline.errors import SightlineError
from sightline.paper.models import QWEN
from sightline.paper.needs import Need
from sightline.paper.paper_table import (
    PAPER_TABLES,
    Block,
    Claim,
    Judgement,
    Line,
    Measured,
    PaperTable,
    interval_words,
    judgement,
)
from sightline.paper.probe_sets import EDIT_REGION
from sightline.paper.tables.shared import COUNT, RANDOM_30
from sightline.report.sections.replaced_text import edit_region_frame, word_coverage

if TYPE_CHECKING:
    from sightline.paper.study import Study


def _line(arm: str, method: str, *published: float) -> Line:
    return Line((method,), published, QWEN, EDIT_REGION, arm)


LINES = (
    _line("full", "Full", 102, 0.873, 1.000, 1.000, 0.000, 0.000),
    _line("target:0.3", "Target (30%)", 102, 0.912, 0.869, 0.897, 0.029, 0.059),
    _line(RANDOM_30, "Random (30%)", 102, 0.716, 0.304, 0.311, 0.578, 0.029),
    _line("grid:0.3", "Grid (30%)", 102, 0.588, 0.386, 0.411, 0.363, 0.088),
)
ARMS = tuple(line.arm for line in LINES)


def _table(study: Study) -> pd.DataFrame:
    def make() -> pd.DataFrame:
        run = study.run(QWEN, EDIT_REGION)
        return edit_region_frame(run.frame(), word_coverage(run))

    found: pd.DataFrame = study.remembered("edit regions", make)
    return found


def localised(study: Study, line: Line) -> list[Measured]:
    table = _table(study)
    own = table[table["arm"] == study.arm(QWEN, line.arm)]
    if own.empty:
        raise SightlineError(f"{line.arm} has not been measured")
    found: Any = own.iloc[0]
    names = ("n", "accuracy", "word_ecr", "ecr", "edit_gone", "word_kept_edit_lost")
    return [Measured(float(found[name])) for name in names]


def _gain(control: str, published: str) -> Claim:
    def decide(study: Study) -> Judgement:
        table = _table(study)
        pair = (table["arm"] == study.arm(QWEN, "target:0.3")) & (table["against"] == study.arm(QWEN, control))
        if not pair.any():
            raise SightlineError(f"target:0.3 and {control} have not both been measured")
        found = table[pair].iloc[0]
        gain = Measured(*(float(found[name]) for name in ("ecr_gain", "ecr_gain_low", "ecr_gain_high")))
        return judgement(gain, f"edit coverage {interval_words(gain)}, 20,000 draws; published {published}")

    name = control.partition(":")[0].capitalize()
    needs = (Need(QWEN, EDIT_REGION, ("target:0.3", control)),)
    return Claim(f"Target keeps more of the substituted character than {name}.", decide, needs, answers=False)


def needs(line: Line) -> list[Need]:
    return [Need(QWEN, EDIT_REGION, ARMS)]


@PAPER_TABLES.register("S14")
class EditRegion(PaperTable):
    number = "S14"
    title = "The substituted character"
    about = (
        "Each question asks for the painted near miss, so accuracy is of positives alone. Word and edit coverage come "
        "from the same mask; the character's box is what the renderer drew and is never shown to a selector."
    )
    blocks = (
        Block(
            ("Method",),
            (
                COUNT,
                TableColumn("accuracy", "Pos. acc.", "score"),
                TableColumn("word_ecr", "Word ECR", "score"),
                TableColumn("ecr", "Edit ECR", "score"),
                TableColumn("edit_gone", "Edit ECR = 0", "score"),
                TableColumn("word_kept_edit_lost", "Word ≥ 0.5, edit < 0.5", "score"),
            ),
            LINES,
            localised,
            needs,
            requires="an OCR engine; people's decisions (--decisions)",
        ),
    )
    claims = (_gain(RANDOM_30, "+0.586 [0.492, 0.676]"), _gain("grid:0.3", "+0.486 [0.397, 0.575]"))
