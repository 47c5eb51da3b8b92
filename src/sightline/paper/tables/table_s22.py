"""Table S22: questions whose evidence stands in several places, and what pruning leaves of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from sightline.analysis.comparison import ALL_TASKS, ArmPair, clustered_mean, score_changes
from sightline.analysis.regions import DrawnTwice, drawn_twice, region_agreement, role_agreement
from sightline.core.table import TableColumn
from sightline.errors import SightlineError
from sightline.paper.case_regions import audited, boxes_of, question_key, several_regions
from sightline.paper.models import QWEN
from sightline.paper.needs import Need
from sightline.paper.open_cases import CASES, CHOICES, FULL, KEPT, LOT, NEEDS, OUTCOME
from sightline.paper.open_sets import DOCVQA, TEXTVQA
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
from sightline.paper.second_annotator import both_annotators
from sightline.paper.tables.shared import COUNT
from sightline.probes.regions import ROLES
from sightline.report.sections.region_coverage import coverage_and_score_frame

if TYPE_CHECKING:
    from sightline.paper.study import Study

COVERAGES = ("ecr", "worst_region", "all_half")
SCOPES = {"All": ALL_TASKS, "DocVQA": DOCVQA, "TextVQA": TEXTVQA}
UNMOVED = "no score changed"


class About(NamedTuple):
    """Which cases a line is about."""

    how: str
    task: str = ALL_TASKS


PUBLISHED = {
    ("All", "30%"): (96, 0.297, 0.216, 0.105, 0.346, -0.653),
    ("All", "50%"): (96, 0.507, 0.385, 0.354, 0.465, -0.534),
    ("All", "70%"): (96, 0.729, 0.613, 0.729, 0.703, -0.296),
    ("DocVQA", "70%"): (48, 0.758, 0.594, 0.708, 0.672, -0.328),
    ("TextVQA", "70%"): (48, 0.701, 0.632, 0.750, 0.733, -0.265),
}
"""Of the paper's own choice; the other lines of the benchmarks were not printed."""
READING = "The paper's reading"
READINGS = {
    ("All", "30%"): "most of the support is gone",
    ("All", "50%"): "the mean hides weak regions",
    ("All", "70%"): "support and answers come back",
    ("DocVQA", "70%"): "labels and layout stay hard",
    ("TextVQA", "70%"): "scene text is kept better",
}
"""How the paper reads its own lines, in our words."""
COLUMNS = (
    COUNT,
    TableColumn("ecr", "ECR", "score", interval=True),
    TableColumn("worst_region", "Worst", "score", interval=True),
    TableColumn("all_half", "All ≥ 0.50", "score", interval=True),
    TableColumn("score", "Pruned score", "score"),
    TableColumn("change", "Δ score", "signed", interval=True),
)


def _lines(how: str) -> tuple[Line, ...]:
    unpublished = (None,) * len(COLUMNS)
    return tuple(
        Line(
            (scope, kept, READINGS.get((scope, kept), "") if how == OUTCOME else ""),
            PUBLISHED.get((scope, kept), unpublished) if how == OUTCOME else unpublished,
            QWEN,
            how,
            arm,
            about=About(how, task),
        )
        for scope, task in SCOPES.items()
        for kept, arm in KEPT.items()
    )


def case_rows(study: Study, about: About) -> pd.DataFrame:
    """The rows of the cases that have regions, with their coverage."""
    rows: pd.DataFrame = study.remembered(
        ("case rows", about.how), lambda: audited(study, boxes_of(several_regions(study, about.how)))
    )
    return rows if about.task == ALL_TASKS else rows[rows["task"] == about.task]


def coverage_cells(own: pd.DataFrame, draws: int, names: Sequence[str] = COVERAGES) -> list[Measured]:
    """Means over questions, resampling images."""
    if own.empty:
        raise SightlineError("none of the cases has a region")
    found = [clustered_mean(own[name], own["image_id"], draws) for name in names]
    return [Measured(each.value, each.low, each.high) for each in found]


def pooled(records: Sequence[Any]) -> Any:
    """The record over all benchmarks, or the one of the only benchmark there is."""
    return records[-1]


def kept_of_all_regions(study: Study, line: Line) -> list[Measured]:
    """Coverage of the arm's masks over questions; its score and Full's with every benchmark weighing the same."""
    rows = case_rows(study, line.about)
    arm, full = (study.arm(line.model, each) for each in (line.arm, FULL))
    own = rows[rows["arm"] == arm]
    coverage = coverage_cells(own, study.options.example_draws)
    change = pooled(list(score_changes(rows, [ArmPair(arm, full)], draws=study.options.example_draws)))
    scores = [Measured(change["score"]), Measured(change["change"], change["change_low"], change["change_high"])]
    return [Measured(float(len(own))), *coverage, *scores]


def needs(line: Line) -> list[Need]:
    return list(NEEDS)


def _associations(study: Study, how: str) -> dict[str, Any]:
    """Records of ``coverage_and_score_frame`` by kind of coverage."""
    found: pd.DataFrame = study.remembered(
        ("coverage and score", how),
        lambda: coverage_and_score_frame(case_rows(study, About(how)), draws=study.options.draws),
    )
    return {str(record["coverage"]): record for record in found.to_dict("records")}


def association(study: Study, line: Line) -> list[Measured]:
    """Spearman's rho of one kind of coverage with the change of score, over questions at budgets."""
    found = _associations(study, line.about.how)[line.words[1].lower()]
    rho = Measured(found["rho"], found["rho_low"], found["rho_high"])
    return [Measured(float(found["n"])), Measured(UNMOVED) if math.isnan(found["rho"]) else rho]


def _worst_says_more(how: str) -> Claim:
    def decide(study: Study) -> Judgement:
        found = _associations(study, how)["worst region"]
        if math.isnan(found["advantage"]):
            return Judgement("open", UNMOVED)
        gain = Measured(*(float(found[name]) for name in ("advantage", "advantage_low", "advantage_high")))
        return judgement(gain, f"rho of the worst region minus that of the union: {interval_words(gain)}")

    sentence = f"The worst region's coverage goes along with the change of score more than the union's ({CASES[how]})."
    return Claim(sentence, decide, NEEDS)


def _drawn(study: Study) -> list[DrawnTwice]:
    found: list[DrawnTwice] = study.remembered("drawn twice", lambda: drawn_twice(*both_annotators(study)))
    return found


def annotators(study: Study, line: Line) -> list[Measured]:
    rows = [row for row in _drawn(study) if line.about in (ALL_TASKS, question_key(row.first.sample_id)[0])]
    return [Measured(float(value)) for value in region_agreement(rows).values()]


def roles(study: Study, line: Line) -> list[Measured]:
    found = role_agreement(_drawn(study))[line.about]
    return [Measured(float(value)) for value in (found.first, found.second, found.both, found.f1)]


AGREEMENT = (
    Line(("All",), (32, 12, 16, 3, 0.393, 0.389, 0.621, 0.563), about=ALL_TASKS),
    Line(("DocVQA",), (16, 5, 3, 0, 0.330, 0.337, 0.553, 0.493), about=DOCVQA),
    Line(("TextVQA",), (16, 7, 13, 3, 0.456, 0.441, 0.689, 0.632), about=TEXTVQA),
)
ROLE_LINES = tuple(
    Line((role.replace("_", " "),), published, about=role)
    for role, published in zip(
        ROLES,
        (
            (30, 32, 30, 0.968), (6, 6, 4, 0.667), (1, 6, 1, 0.286), (2, 3, 1, 0.400), (5, 2, 1, 0.286), (3, 9, 0, 0.0),
        ),
        strict=True,
    )
)  # fmt: skip
PEOPLE = "regions that two people drew (--annotations, --second-annotations)"


@PAPER_TABLES.register("S22")
class SeveralRegionsTable(PaperTable):
    number = "S22"
    title = "Evidence in several regions"
    about = (
        "Masks of Qwen Target+Grid on TextVQA-500 and DocVQA-500. ECR is that of the regions' union, Worst that of the "
        "least covered region; over all, score weighs TextVQA's accuracy and DocVQA's ANLS the same. The paper's cases "
        "were chosen by outcome: Full scores at least 0.8 on each, and three in four lost half a point or more at some "
        "budget. Its scores and losses are therefore artefacts of the choice and say nothing about the benchmarks; the "
        "second block draws as many by lot. Regions are people's with --annotations, else the boxes that come with the "
        "benchmarks; a note says which."
    )
    blocks = (
        *(
            Block(("Scope", "Keep", READING), COLUMNS, _lines(how), kept_of_all_regions, needs, title=title)
            for how, title in CHOICES.items()
        ),
        Block(
            ("Cases", "Coverage of the"),
            (TableColumn("n", "Questions × budgets", "count"), TableColumn("rho", "Spearman", "signed", interval=True)),
            (
                Line((CASES[OUTCOME], "Worst region"), (288, 0.393), QWEN, OUTCOME, about=About(OUTCOME)),
                Line((CASES[OUTCOME], "Union"), (288, 0.327), QWEN, OUTCOME, about=About(OUTCOME)),
                Line((CASES[LOT], "Worst region"), (None, None), QWEN, LOT, about=About(LOT)),
                Line((CASES[LOT], "Union"), (None, None), QWEN, LOT, about=About(LOT)),
            ),
            association,
            needs,
            title="Coverage and change of score",
        ),
        Block(
            ("Scope",),
            (
                COUNT,
                TableColumn("same_count", "Same number", "count"),
                TableColumn("same_roles", "Same roles", "count"),
                TableColumn("all_matched", "All IoU ≥ 0.5", "count"),
                TableColumn("matched_iou", "Matched IoU", "score"),
                TableColumn("union_iou", "Union IoU", "score"),
                TableColumn("first_covered", "First covered", "score"),
                TableColumn("second_covered", "Second covered", "score"),
            ),
            AGREEMENT,
            annotators,
            title="Two annotators before adjudication (from the artifact)",
            requires=PEOPLE,
        ),
        Block(
            ("Role",),
            (
                TableColumn("first", "First", "count"),
                TableColumn("second", "Second", "count"),
                TableColumn("both", "Both", "count"),
                TableColumn("f1", "F1", "score"),
            ),
            ROLE_LINES,
            roles,
            title="Questions with a region of each role, by annotator (from the artifact)",
            requires=PEOPLE,
        ),
    )
    claims = (_worst_says_more(OUTCOME), _worst_says_more(LOT))
