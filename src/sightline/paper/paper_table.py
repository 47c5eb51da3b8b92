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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pandas as pd
from scipy.stats import norm

from sightline.core.registry import Registry
from sightline.core.table import MINUS, TableColumn
from sightline.errors import SightlineError
from sightline.paper.cut import AT_ZERO, SHARED, Cut, judged
from sightline.paper.models import INTERNVL, MODELS
from sightline.paper.needs import Need, merged
from sightline.paper.probe_sets import DEVELOPMENT
from sightline.report.columns import column_of
from sightline.statistics.arm_rows import plain_rows
from sightline.statistics.intervals import EQUIVALENCE_LEVEL, LEVEL
from sightline.statistics.metrics import METRICS
from sightline.statistics.paired import equivalence, holm
from sightline.statistics.readable_answers import nothing_to_read
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
    published: tuple[float | str | Measured | None, ...]
    """Cells of the other columns as the paper prints them, some with an interval; None for a dash."""
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


Outcome = Literal["holds", "fails", "open", "not judged", "not measured"]
Side = Literal["above", "below", "equal"]
"""What a sentence says of a difference: above zero, below it, or within a margin of it."""
ALPHA = 0.05
EQUIVALENT: dict[str, Outcome] = {"equal": "holds", "different": "fails", "open": "open"}
MARGINS = {"hfpr": 0.05, "rho": 0.2}
MARGIN = 0.02
"""How far apart two numbers may be that are called equal. The paper states no margin: these are ours."""


@dataclass(frozen=True)
class Judgement:
    """What became of a claim, in a sentence."""

    outcome: Outcome
    words: str
    p: float = math.nan
    """Of the test behind it; not a number where something was counted rather than tested."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper about a table, and how rows decide it."""

    sentence: str
    decide: Callable[[Study], Judgement]
    needs: tuple[Need, ...] = ()
    answers: bool = True
    """Whether it is about what models say; masks and times can be judged whatever is answered."""

    def judge(self, study: Study, models: Iterable[str] = ()) -> Judgement:
        """``models`` are those of its table, for a claim that names none."""
        try:
            found = self.decide(study)
        except SightlineError as error:
            return Judgement("not measured", str(error))
        concerned = dict.fromkeys(need.model for need in self.needs) or dict.fromkeys(models)
        strange = [f"{name} for {MODELS[model].title}" for model in concerned if (name := study.stand_in(model))]
        if strange or study.options.demo:
            reason = ", ".join(strange) or "drawn pages"
            return Judgement("not judged", f"{found.words} ({reason}: a stand-in decides nothing)")
        silent = (silence(study, need) for need in self.needs) if self.answers else ()
        reason = next(filter(None, silent), "")
        return Judgement("open", f"{found.words}; {reason}") if reason else found


def silence(study: Study, need: Need) -> str:
    """Why nothing can be read from a model's answers, InternVL's at Full's threshold; nothing where something can."""

    def make() -> str:
        cut = SHARED if need.model == INTERNVL and need.probes.startswith(DEVELOPMENT) else AT_ZERO
        try:
            rows = plain_rows(judged(study, need.model, need.probes, cut, need.box_source, need.scorer))
        except SightlineError:  # rows of another set decided the claim
            return ""
        return nothing_to_read(rows, draws=study.options.draws)

    found: str = study.remembered(("silence", need.run), make)
    return found


def corrected(found: Sequence[Judgement], alpha: float = ALPHA) -> list[Judgement]:
    """Holm's correction for the number of tests of one table: what does not survive it is open."""
    tested = [place for place, each in enumerate(found) if not math.isnan(each.p)]
    adjusted = dict(zip(tested, holm([found[place].p for place in tested]), strict=True))
    return [
        replace(each, outcome="open", words=f"{each.words} (p = {each.p:.2g}, with Holm {adjusted[place]:.2g})")
        if each.outcome in ("holds", "fails") and adjusted.get(place, 0.0) > alpha
        else each
        for place, each in enumerate(found)
    ]


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


def paired(study: Study, line: Line, minus: str | Line, metric: str, level: float = LEVEL) -> Measured:
    """The line's arm minus another in one metric, with its paired image-cluster interval."""
    other = minus if isinstance(minus, Line) else replace(line, arm=minus)
    parts = []
    for side, name in ((line, "this"), (other, "that")):
        rows = judged(study, side.model, side.probes, side.cut, side.box_source, side.scorer)
        own = rows[rows["arm"] == study.arm(side.model, side.arm)]
        if own.empty:
            raise SightlineError(f"{line.arm} and {other.arm} have not both been measured")
        parts.append(own.assign(arm=name, plain_arm=name))
    return paired_rows(study, pd.concat(parts, ignore_index=True), "that", metric, level)


def paired_rows(study: Study, rows: pd.DataFrame, minus: str, metric: str, level: float = LEVEL) -> Measured:
    """The one other arm of these rows minus the named one."""
    found = paired_differences(rows, minus, metrics=[metric], draws=study.options.draws, level=level).iloc[0]
    return Measured(float(found["diff"]), float(found["low"]), float(found["high"]))


def judgement(
    found: Measured,
    words: str,
    expects: Side = "above",
    margin: float = MARGIN,
    narrow: Measured | None = None,
) -> Judgement:
    """What an interval says of a claim that a number lies above zero, below it, or within a margin of it.

    Equal is two one-sided tests, and asks for the 90% interval, ``narrow``. Tests read the error back from the 95% one:
    (value - low) / 1.96 towards the lower side, (high - value) / 1.96 towards the upper.
    """
    value, low, high = found.value, found.low, found.high
    if not isinstance(value, float | int) or not low < high:
        return Judgement("open", f"{words}; no interval", 1.0)
    error_down, error_up = ((end or math.inf) / norm.ppf(0.5 + LEVEL / 2) for end in (value - low, high - value))

    def above(bound: float) -> float:
        return float(norm.sf((value - bound) / error_down))

    def below(bound: float) -> float:
        return float(norm.cdf((value - bound) / error_up))

    if expects == "equal":
        once = norm.ppf(EQUIVALENCE_LEVEL / 2 + 0.5)
        narrow = narrow or Measured(value, value - once * error_down, value + once * error_up)
        outcome: Outcome = EQUIVALENT[equivalence(narrow.low, narrow.high, margin)]
        p = min(above(margin), below(-margin)) if outcome == "fails" else max(above(-margin), below(margin))
        return Judgement(outcome, f"{words} (90% within ±{margin:g}?)", p)
    p = min(1.0, 2.0 * min(above(0.0), below(0.0)))
    if low <= 0.0 <= high:
        return Judgement("open", words, p)
    return Judgement("holds" if (low > 0.0) == (expects == "above") else "fails", words, p)


def interval_words(found: Measured) -> str:
    """``+0.050 [+0.010, +0.090]``"""
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]".replace("-", MINUS)


def difference(
    sentence: str,
    *,
    model: str,
    probes: str,
    arm: str,
    minus: str | Line,
    metric: str,
    expects: Side,
    cut: Cut = AT_ZERO,
    box_source: str = "annotation",
) -> Claim:
    """A claim about a paired difference between two arms; ``minus`` may be a line of another run."""
    line = Line((), (), model, probes, arm, cut=cut, box_source=box_source)
    other = minus if isinstance(minus, Line) else replace(line, arm=minus)
    margin = MARGINS.get(metric, MARGIN)

    def decide(study: Study) -> Judgement:
        found = paired(study, line, other, metric)
        narrow = paired(study, line, other, metric, EQUIVALENCE_LEVEL) if expects == "equal" else None
        same = other.box_source == box_source
        names = (arm, other.arm) if same else (f"{arm} with {box_source}", f"{other.arm} with {other.box_source}")
        words = f"{METRICS[metric].label} of {names[0]} minus {names[1]}: {interval_words(found)}"
        return judgement(found, words, expects, margin, narrow)

    needs = tuple(merged([*usual_needs(line), *usual_needs(other)]))
    return Claim(sentence, decide, needs, METRICS[metric].reads_answers)
