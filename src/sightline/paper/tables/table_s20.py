"""Table S20: all validation questions of TextVQA and DocVQA, pruned against Full."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sightline.core.table import TableColumn
from sightline.paper.models import LLAVA, MODELS, QWEN
from sightline.paper.needs import Need
from sightline.paper.open_scores import ARTIFACT, compared, ends, score_difference
from sightline.paper.open_sets import DOCVQA, DOCVQA_LITE, TEXTVQA, TEXTVQA_LITE
from sightline.paper.paper_table import PAPER_TABLES, Block, Claim, Line, Measured, PaperTable
from sightline.paper.tables.shared import COUNT

if TYPE_CHECKING:
    from sightline.paper.study import Study

METRIC = {
    TEXTVQA: "TextVQA / Acc.",
    DOCVQA: "DocVQA / ANLS",
    TEXTVQA_LITE: "TextVQA-500 / Acc.",
    DOCVQA_LITE: "DocVQA-500 / ANLS",
}
SELECTORS = {QWEN: ("target_grid", "Target+Grid"), LLAVA: ("target", "Target")}
"""The query-guided selector of each model, and its name in the paper."""
CHANGE_COLUMNS = (
    TableColumn("change", "Paired Δ", "signed"),
    TableColumn("interval", "95% interval", "words"),
    TableColumn("tally", "Win/Loss/Tie", "words"),
)
COLUMNS = (
    COUNT,
    TableColumn("keep", "Keep", "score"),
    TableColumn("full", "Full", "score"),
    TableColumn("pruned", "Pruned", "score"),
    *CHANGE_COLUMNS,
)


class Compare(NamedTuple):
    """What a line's arm is compared with, and by which rule."""

    minus: str = "full"
    rule: str = ""


def query_guided(model: str, budget: int) -> str:
    """``target_grid:0.7`` for Qwen, ``target:0.7`` for LLaVA."""
    return f"{SELECTORS[model][0]}:{budget / 100:g}"


def words_of(model: str, probes: str, budget: int) -> tuple[str, ...]:
    return MODELS[model].title, METRIC[probes], f"{SELECTORS[model][1]} ({budget}%)"


def _line(model: str, probes: str, budget: int, n: int, *published: float | None, tally: str | None) -> Line:
    keep, full, pruned, change, low, high = published
    interval = None if low is None or high is None else ends(low, high)
    cells = (n, keep, full, pruned, change, interval, tally)
    return Line(words_of(model, probes, budget), cells, model, probes, query_guided(model, budget), about=Compare())


LINES = (
    _line(QWEN, TEXTVQA, 30, 5000, 0.300, 0.8282, 0.6346, -0.1936, -0.2057, -0.1816, tally="183/1269/3548"),
    _line(QWEN, TEXTVQA, 70, 5000, 0.700, 0.8282, 0.7947, -0.0335, -0.0403, -0.0270, tally="122/308/4570"),
    _line(QWEN, DOCVQA, 30, 5349, 0.300, 0.9395, 0.5291, -0.4103, -0.4228, -0.3976, tally="91/3101/2157"),
    _line(QWEN, DOCVQA, 70, 5349, 0.700, 0.9395, 0.8462, -0.0933, -0.1015, -0.0855, tally="94/944/4311"),
    _line(LLAVA, TEXTVQA, 40, 5000, 0.401, 0.4847, 0.2766, -0.2081, -0.2203, -0.1958, tally="150/1279/3571"),
    _line(LLAVA, TEXTVQA, 70, 5000, 0.701, 0.4847, 0.3588, -0.1259, -0.1364, -0.1155, tally="139/832/4029"),
    _line(LLAVA, DOCVQA, 40, 5349, 0.401, 0.2157, 0.1181, -0.0976, -0.1063, -0.0889, tally="183/842/4324"),
    _line(LLAVA, DOCVQA, 70, 5349, 0.701, 0.2157, 0.1619, -0.0538, -0.0616, -0.0461, tally="221/618/4510"),
)
BY_ARTIFACT_RULES = tuple(replace(line, about=Compare(rule=ARTIFACT)) for line in LINES)


def _recovery(model: str, probes: str, low_budget: int, *published: float, tally: str) -> Line:
    change, low, high = published
    words = (MODELS[model].title, METRIC[probes], f"70% − {low_budget}%")
    minus = query_guided(model, low_budget)
    cells = (change, ends(low, high), tally)
    return Line(words, cells, model, probes, query_guided(model, 70), about=Compare(minus))


RECOVERIES = (
    _recovery(QWEN, TEXTVQA, 30, 0.1601, 0.1483, 0.1719, tally="1128/226/3646"),
    _recovery(QWEN, DOCVQA, 30, 0.3170, 0.3038, 0.3300, tally="2691/305/2353"),
    _recovery(LLAVA, TEXTVQA, 40, 0.0822, 0.0732, 0.0913, tally="568/121/4311"),
    _recovery(LLAVA, DOCVQA, 40, 0.0438, 0.0376, 0.0502, tally="453/135/4761"),
)


def _unpublished(probes: str, budget: int, pruned: float | None = None) -> Line:
    """A 500-question line of which at most the pruned score was published."""
    return _line(QWEN, probes, budget, 500, None, None, pruned, None, None, None, tally=None)


LITE_LINES = (
    _unpublished(TEXTVQA_LITE, 30, 0.6212),
    _unpublished(TEXTVQA_LITE, 50),
    _unpublished(TEXTVQA_LITE, 70),
    _unpublished(DOCVQA_LITE, 30, 0.5217),
    _unpublished(DOCVQA_LITE, 50, 0.7377),
    _unpublished(DOCVQA_LITE, 70),
    _line(LLAVA, TEXTVQA_LITE, 40, 500, 0.401, 0.4950, 0.2710, -0.2240, -0.2636, -0.1850, tally="15/141/344"),
    _line(LLAVA, DOCVQA_LITE, 40, 500, 0.401, 0.2551, 0.1358, -0.1194, -0.1502, -0.0888, tally="16/96/388"),
)


def against_full(study: Study, line: Line) -> list[Measured]:
    found = compared(study, line.model, line.probes, line.arm, line.about.minus, rule=line.about.rule)
    levels = (found.n, found.keep, found.reference, found.score)
    return [*map(Measured, levels), found.change, found.interval, Measured(found.tally)]


def change_alone(study: Study, line: Line) -> list[Measured]:
    return against_full(study, line)[-len(CHANGE_COLUMNS) :]


def with_reference(line: Line) -> list[Need]:
    return [Need(line.model, line.probes, (line.about.minus, line.arm))]


def _claims() -> tuple[Claim, ...]:
    lower = (
        score_difference(
            f"{line.words[0]}, {line.words[1]}: {line.words[2]} scores below Full.",
            model=line.model, probes=line.probes, arm=line.arm, minus="full", expects="below",
        )
        for line in LINES
    )  # fmt: skip
    recovers = (
        score_difference(
            f"{line.words[0]}, {line.words[1]}: 70% recovers part of what the smaller budget lost.",
            model=line.model, probes=line.probes, arm=line.arm, minus=line.about.minus, expects="above",
        )
        for line in RECOVERIES
    )  # fmt: skip
    return (*lower, *recovers)


@PAPER_TABLES.register("S20")
class FullValidationAnswers(PaperTable):
    number = "S20"
    title = "TextVQA and DocVQA, all validation questions answered in words"
    about = (
        "Greedy answers of at most 32 tokens to the original questions; Full is answered once for all budgets. "
        "Selectors look at the question without the instruction that follows it (the artifact's looked at both for "
        "Qwen). Scores are the official soft accuracy and ANLS. Questions are resampled, 20,000 draws."
    )
    blocks = (
        Block(("Model", "Dataset / metric", "Method"), COLUMNS, LINES, against_full, with_reference),
        Block(
            ("Model", "Dataset / metric", "Method"),
            COLUMNS,
            BY_ARTIFACT_RULES,
            against_full,
            with_reference,
            title="The same answers scored as the artifact did: lighter processing of words, ANLS without punctuation",
        ),
        Block(
            ("Model", "Dataset / metric", "Budgets"),
            CHANGE_COLUMNS,
            RECOVERIES,
            change_alone,
            with_reference,
            title="What the larger budget brings back (from the artifact)",
        ),
        Block(
            ("Model", "Dataset / metric", "Method"),
            COLUMNS,
            LITE_LINES,
            against_full,
            with_reference,
            title="The 500-question parts on which budgets were chosen (from the artifact)",
            requires="the 500-question parts (lite-*.parquet)",
        ),
    )
    claims = _claims()
