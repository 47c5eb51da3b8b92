"""What a table of the paper is: blocks of printed lines with published values, a way to measure each, and claims.

    @PAPER_TABLES.register("S5")
    class CorrectPositives(PaperTable):
        number = "S5"
        title = "Correct positives and their evidence"
        about = "Confirmation positives answered yes."
        blocks = (Block(("Method",), COLUMNS, LINES, measure=provenance),)

is all that a new one needs. Another package names such a class in its entry-point group ``sightline.paper_tables``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sightline.core.registry import Registry
from sightline.errors import SightlineError
from sightline.paper.cut import AT_ZERO, Cut, judged
from sightline.paper.models import INTERNVL, MODELS
from sightline.paper.needs import Need
from sightline.paper.probe_sets import DEVELOPMENT
from sightline.report.metric_columns import column_of
from sightline.report.table import MINUS, TableColumn
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import paired_differences

if TYPE_CHECKING:
    from sightline.paper.study import Study

PAPER_TABLES: Registry[type[PaperTable]] = Registry(
    "table of the paper", group="sightline.paper_tables", package="sightline.paper.tables"
)


@dataclass(frozen=True)
class Measured:
    """One measured cell: a number with its interval if it has one, or words."""

    value: float | str | None
    low: float = math.nan
    high: float = math.nan


NOTHING = Measured(None)


@dataclass(frozen=True)
class Line:
    """One printed line: its words, its published cells, and what it is about."""

    words: tuple[str, ...]
    """Cells of the text columns."""
    published: tuple[float | str | None, ...]
    """Cells of the other columns as the paper prints them; None for a dash."""
    model: str = ""
    probes: str = ""
    arm: str = ""
    panel: str = ""
    box_source: str = "annotation"
    cut: Cut = AT_ZERO
    scorer: str = ""
    """What an answer is, where it is not what the probe set is usually asked for."""
    about: Any = None
    """Whatever else the block's ``measure`` wants to know of the line."""


Measure = Callable[["Study", Line], Sequence[Measured]]


@dataclass(frozen=True)
class Block:
    """Lines under one head. Most tables are one block."""

    words: tuple[str, ...]
    """Heads of the text columns."""
    columns: tuple[TableColumn, ...]
    """The measured columns."""
    lines: tuple[Line, ...]
    measure: Measure
    """Cells of a line, one per measured column."""
    needs: Callable[[Line], Iterable[Need]] | None = None
    """Rows that a line asks for; without it the rows of its arm, and those its threshold is chosen on."""
    title: str = ""
    requires: str = ""
    """What the block needs beyond rows, in words: a GPU, people's decisions."""
    prepare: Callable[[Study], None] | None = None
    """Makes what is needed beyond rows, once, before any line is measured: cost cards."""

    def needed(self, line: Line) -> list[Need]:
        return list(self.needs(line)) if self.needs is not None else usual_needs(line)


def usual_needs(line: Line) -> list[Need]:
    """The rows of the line's arm, and those that its threshold is chosen on."""
    if not line.model:
        return []
    found = [Need(line.model, line.probes, (line.arm,), line.box_source, line.scorer)]
    if line.cut.rule:
        plain = line.arm.partition("+")[0]
        where = DEVELOPMENT if line.model == INTERNVL else line.cut.probes
        found.append(Need(line.model, where, line.cut.arms or (plain,)))
    return found


Outcome = Literal["holds", "fails", "open", "not measured"]
Side = Literal["above", "below", "around"]
"""Where an interval lies: above zero, below it, or around it."""


@dataclass(frozen=True)
class Judgement:
    """What became of a claim, in a sentence."""

    outcome: Outcome
    words: str


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper about a table, and how rows decide it."""

    sentence: str
    decide: Callable[[Study], Judgement]
    needs: tuple[Need, ...] = ()

    def judge(self, study: Study) -> Judgement:
        try:
            return self.decide(study)
        except SightlineError as error:
            return Judgement("not measured", str(error))


class PaperTable:
    """One numbered table."""

    number: ClassVar[str]
    """``1``, ``2``, ``S1`` ..."""
    title: ClassVar[str]
    about: ClassVar[str]
    """What it shows and how its cells are made, in our words."""
    blocks: ClassVar[tuple[Block, ...]]
    claims: ClassVar[tuple[Claim, ...]] = ()

    @classmethod
    def needs(cls) -> list[Need]:
        lines = [need for block in cls.blocks for line in block.lines for need in block.needed(line)]
        return [*lines, *(need for claim in cls.claims for need in claim.needs)]

    @classmethod
    def models(cls) -> list[str]:
        """The paper's names of the models that its lines are about."""
        found = {need.model for need in cls.needs()} | {line.model for block in cls.blocks for line in block.lines}
        return [name for name in MODELS if name in found]


# Columns and claims that many tables share.


def metric_heads(*names: str) -> tuple[TableColumn, ...]:
    """Columns of metrics, each with its interval."""
    return tuple(column_of(METRICS[name]) for name in names)


def paired(study: Study, line: Line, minus: str, metric: str) -> Measured:
    """The line's arm minus another in one metric, with its paired image-cluster interval."""
    rows = judged(study, line.model, line.probes, line.cut, line.box_source, line.scorer)
    left, right = study.arm(line.model, line.arm), study.arm(line.model, minus)
    both = rows[rows["arm"].isin((left, right))]
    if both["arm"].nunique() < 2:
        raise SightlineError(f"{line.arm} and {minus} have not both been measured")
    found = paired_differences(both, right, metrics=[metric], draws=study.options.draws).iloc[0]
    return Measured(float(found["diff"]), float(found["low"]), float(found["high"]))


def judgement(low: float, high: float, words: str, expects: Side = "above") -> Judgement:
    """What an interval says of a claim that it lies above zero, below it, or (``around``) holds it."""
    side: Side = "above" if low > 0 else "below" if high < 0 else "around"
    if side == expects:
        return Judgement("holds", words)
    return Judgement("open" if side == "around" else "fails", words)


def difference(
    sentence: str,
    *,
    model: str,
    probes: str,
    arm: str,
    minus: str,
    metric: str,
    expects: Side,
    cut: Cut = AT_ZERO,
) -> Claim:
    """A claim about a paired difference between two arms."""
    line = Line((), (), model, probes, arm, cut=cut)

    def decide(study: Study) -> Judgement:
        found = paired(study, line, minus, metric)
        interval = f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]".replace("-", MINUS)
        words = f"{METRICS[metric].label} of {arm} minus {minus}: {interval}"
        return judgement(found.low, found.high, words, expects)

    return Claim(sentence, decide, (Need(model, probes, (arm, minus, *cut.arms)),))
