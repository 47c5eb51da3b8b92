"""Table S24: a text detector's boxes as a soft prior for the selector, on open questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from sightline.analysis.comparison import ALL_TASKS, ArmPair, score_changes
from sightline.core.table import TableColumn
from sightline.errors import SightlineError
from sightline.paper.models import QWEN
from sightline.paper.needs import Need
from sightline.paper.open_cases import CASES, CHOICES, FULL, KEPT, NEEDS, OUTCOME, case_ids, open_rows
from sightline.paper.open_scores import by_rule
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
from sightline.paper.study import DETECTOR
from sightline.paper.tables.shared import COUNT
from sightline.paper.tables.table_s22 import pooled

if TYPE_CHECKING:
    from sightline.paper.study import Study

GRID, TARGET, SOFT = KEPT["70%"], "target:0.7", "soft_evidence:0.7:beta=0.1"
BASE, METADATA, NO_BOXES, OCR = "base grid", "metadata grid", "same rule without boxes", "OCR soft"
"""Grid on the original images; on the exported ones Grid, Target, and Target with the boxes' prior."""
PAIRS = (ArmPair(OCR, BASE), ArmPair(OCR, METADATA), ArmPair(OCR, NO_BOXES), ArmPair(BASE, FULL))


class CaseScope(NamedTuple):
    """Which of the cases a line is about."""

    how: str
    task: str = ALL_TASKS
    with_boxes: bool = False


PUBLISHED = {
    ("All", ALL_TASKS, False): (96, 0.999, 0.703, 0.771, 0.746, None, 0.068, 0.024, None, 42.250, 92),
    ("DocVQA", DOCVQA, False): (48, 1.000, 0.672, 0.739, 0.740, None, 0.067, -0.001, None, 69.708, 48),
    ("TextVQA", TEXTVQA, False): (48, 0.998, 0.733, 0.802, 0.752, None, 0.069, 0.050, None, 14.792, 44),
    ("Rows with boxes", ALL_TASKS, True): (92, 0.999, 0.701, 0.772, 0.746, None, 0.071, 0.025, None, 44.087, 92),
}
COLUMNS = (
    COUNT,
    TableColumn("full", "Full", "score"),
    TableColumn("base", "Base grid", "score"),
    TableColumn("soft", "OCR soft", "score"),
    TableColumn("metadata", "Metadata grid", "score"),
    TableColumn("no_boxes", "No boxes", "score"),
    TableColumn("base_change", "Δ base", "signed", interval=True),
    TableColumn("metadata_change", "Δ meta", "signed", interval=True),
    TableColumn("no_boxes_change", "Δ no boxes", "signed", interval=True),
    TableColumn("boxes", "Boxes", "number"),
    TableColumn("box_rows", "Box rows", "count"),
)


def _lines(how: str) -> tuple[Line, ...]:
    return tuple(
        Line(
            (words,),
            published if how == OUTCOME else (None,) * len(COLUMNS),
            QWEN,
            how,
            SOFT,
            box_source=DETECTOR,
            about=CaseScope(how, task, with_boxes),
        )
        for (words, task, with_boxes), published in PUBLISHED.items()
    )


def case_scores(study: Study, how: str) -> tuple[pd.DataFrame, dict[str, int]]:
    """Scores of the cases under all arms, and how many boxes the detector showed on each."""
    case_ids(study, how)  # says why, where nothing could be chosen
    run = study.run(QWEN, how, DETECTOR)
    boxes = {str(probe["id"]): len(probe.get("boxes") or ()) for probe in run.probes}
    parts = []
    for rows, names in (
        (open_rows(study), {FULL: FULL, GRID: BASE}),
        (by_rule(study, QWEN, how, box_source=DETECTOR), {GRID: METADATA, TARGET: NO_BOXES, SOFT: OCR}),
    ):
        arms = {study.arm(QWEN, arm): name for arm, name in names.items()}
        own = rows[rows["arm"].isin(arms) & rows["probe_id"].isin(boxes)]
        parts.append(own.assign(arm=own["arm"].map(arms))[["probe_id", "image_id", "task", "arm", "score"]])
    return pd.concat(parts, ignore_index=True), boxes


def _compared(study: Study, scope: CaseScope) -> tuple[dict[ArmPair, Any], list[int]]:
    """The comparison of each pair, over the questions of the scope, and their numbers of boxes."""
    rows, boxes = study.remembered(("case scores", scope.how), lambda: case_scores(study, scope.how))
    if scope.task != ALL_TASKS:
        rows = rows[rows["task"] == scope.task]
    if scope.with_boxes:
        rows = rows[rows["probe_id"].map(boxes) > 0]
    if rows.empty:
        raise SightlineError("the detector found no box on any case")
    records = list(score_changes(rows, PAIRS, draws=study.options.example_draws))
    found = {pair: pooled([each for each in records if (each["arm"], each["reference"]) == pair]) for pair in PAIRS}
    return found, [boxes[probe] for probe in rows["probe_id"].unique()]


def detector_in_loop(study: Study, line: Line) -> list[Measured]:
    found, boxes = _compared(study, line.about)
    *differences, of_full = (found[pair] for pair in PAIRS)
    base, metadata, no_boxes = differences
    scores = (
        of_full["reference_score"],
        base["reference_score"],
        base["score"],
        metadata["reference_score"],
        no_boxes["reference_score"],
    )
    return [
        Measured(float(base["n"])),
        *map(Measured, scores),
        *(Measured(each["change"], each["change_low"], each["change_high"]) for each in differences),
        Measured(sum(boxes) / len(boxes)),
        Measured(float(sum(count > 0 for count in boxes))),
    ]


def _detected(how: str) -> Need:
    return Need(QWEN, how, (SOFT, GRID, TARGET), DETECTOR)


def needs(line: Line) -> list[Need]:
    return [*NEEDS, _detected(line.about.how)]


def _better_than(pair: ArmPair, how: str) -> Claim:
    def decide(study: Study) -> Judgement:
        found = _compared(study, CaseScope(how))[0][pair]
        change = Measured(*(float(found[name]) for name in ("change", "change_low", "change_high")))
        return judgement(change, f"difference {interval_words(change)}")

    sentence = f"A detector's boxes as a soft prior score higher than the {pair.reference} ({CASES[how]})."
    return Claim(sentence, decide, (*NEEDS, _detected(how)))


@PAPER_TABLES.register("S24")
class DetectorInLoop(PaperTable):
    number = "S24"
    title = "A text detector in the loop of open questions"
    about = (
        "Qwen at 70 %. Base grid is Target+Grid on the original images. OCR soft adds all boxes of a text detector to "
        "Target's score with weight 0.10, as these figures were made (elsewhere the paper fixes 0.05), on exported "
        "images (JPEG, no side above 1600 pixels); Metadata grid is Target+Grid on those. OCR soft has no grid, so its "
        "difference to either is not the boxes' alone: No boxes is the same rule without them, which the paper lacks. "
        "The paper's cases were chosen by outcome, by Base grid's own losses among others: whatever selects "
        "differently then looks better than Base grid, and Full's score is the rule's. The second block draws by lot."
    )
    blocks = tuple(
        Block(("Scope",), COLUMNS, _lines(how), detector_in_loop, needs, title=title, requires="a text detector")
        for how, title in CHOICES.items()
    )
    claims = tuple(_better_than(pair, how) for how in CHOICES for pair in PAIRS[:-1])
