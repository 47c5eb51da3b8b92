"""Table S24: a text detector's boxes as a soft prior for the selector, on open questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from sightline.analysis.score_changes import ALL_TASKS, ArmPair, rows_in_words, score_changes
from sightline.errors import SightlineError
from sightline.paper.models import QWEN
from sightline.paper.needs import Need
from sightline.paper.open_cases import FULL, KEPT, NEEDS, OUTCOME, open_rows
from sightline.paper.open_sets import DOCVQA, TEXTVQA
from sightline.paper.paper_table import PAPER_TABLES, Block, Claim, Judgement, Line, Measured, PaperTable, judgement
from sightline.paper.study import DETECTOR
from sightline.paper.tables.shared import COUNT
from sightline.paper.tables.table_s22 import CHOICES, pooled
from sightline.report.table import TableColumn

if TYPE_CHECKING:
    from sightline.paper.study import Study

GRID, SOFT = KEPT["70%"], "soft_evidence:0.7:beta=0.1"
BASE, METADATA, OCR = "base grid", "metadata grid", "OCR soft"
"""Grid on the original images, Grid on the exported ones, and the boxes' prior on the exported ones."""
PAIRS = (ArmPair(OCR, BASE), ArmPair(OCR, METADATA), ArmPair(BASE, FULL))


class Scope(NamedTuple):
    """Which of the cases a line is about."""

    how: str
    task: str = ALL_TASKS
    with_boxes: bool = False


PUBLISHED = {
    ("All", ALL_TASKS, False): (96, 0.999, 0.703, 0.771, 0.746, 0.068, 0.024, 42.250, 92),
    ("DocVQA", DOCVQA, False): (48, 1.000, 0.672, 0.739, 0.740, 0.067, -0.001, 69.708, 48),
    ("TextVQA", TEXTVQA, False): (48, 0.998, 0.733, 0.802, 0.752, 0.069, 0.050, 14.792, 44),
    ("Rows with boxes", ALL_TASKS, True): (92, 0.999, 0.701, 0.772, 0.746, 0.071, 0.025, 44.087, 92),
}
COLUMNS = (
    COUNT,
    TableColumn("full", "Full", "score"),
    TableColumn("base", "Base grid", "score"),
    TableColumn("soft", "OCR soft", "score"),
    TableColumn("metadata", "Metadata grid", "score"),
    TableColumn("base_change", "Δ base", "signed", interval=True),
    TableColumn("metadata_change", "Δ meta", "signed", interval=True),
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
            about=Scope(how, task, with_boxes),
        )
        for (words, task, with_boxes), published in PUBLISHED.items()
    )


def four_ways(study: Study, how: str) -> tuple[pd.DataFrame, dict[str, int]]:
    """Scores of the cases under four arms, and how many boxes the detector showed on each."""
    run = study.run(QWEN, how, DETECTOR)
    boxes = {str(probe["id"]): len(probe.get("boxes") or ()) for probe in run.probes}
    parts = []
    for rows, names in (
        (open_rows(study), {FULL: FULL, GRID: BASE}),
        (rows_in_words(run.frame()), {GRID: METADATA, SOFT: OCR}),
    ):
        arms = {study.arm(QWEN, arm): name for arm, name in names.items()}
        own = rows[rows["arm"].isin(arms) & rows["probe_id"].isin(boxes)]
        parts.append(own.assign(arm=own["arm"].map(arms))[["probe_id", "image_id", "task", "arm", "score"]])
    return pd.concat(parts, ignore_index=True), boxes


def _compared(study: Study, scope: Scope) -> tuple[dict[ArmPair, Any], list[int]]:
    """The comparison of each pair, over the questions of the scope, and their numbers of boxes."""
    rows, boxes = study.remembered(("four ways", scope.how), lambda: four_ways(study, scope.how))
    if scope.task != ALL_TASKS:
        rows = rows[rows["task"] == scope.task]
    if scope.with_boxes:
        rows = rows[rows["probe_id"].map(boxes) > 0]
    if rows.empty:
        raise SightlineError("the detector found no box on any case")
    records = list(score_changes(rows, PAIRS, draws=study.options.example_draws))
    found = {
        pair: pooled(
            [record for record in records if record["arm"] == pair.arm and record["reference"] == pair.reference]
        )
        for pair in PAIRS
    }
    return found, [boxes[probe] for probe in rows["probe_id"].unique()]


def detector_in_loop(study: Study, line: Line) -> list[Measured]:
    found, boxes = _compared(study, line.about)
    base, metadata, full = (found[pair] for pair in PAIRS)
    scores = (full["reference_score"], base["reference_score"], base["score"], metadata["reference_score"])
    return [
        Measured(float(base["n"])),
        *map(Measured, scores),
        *(Measured(each["change"], each["change_low"], each["change_high"]) for each in (base, metadata)),
        Measured(sum(boxes) / len(boxes)),
        Measured(float(sum(count > 0 for count in boxes))),
    ]


def _detected(how: str) -> Need:
    return Need(QWEN, how, (SOFT, GRID), DETECTOR)


def needs(line: Line) -> list[Need]:
    return [*NEEDS, _detected(line.about.how)]


def _better_than(pair: ArmPair, how: str) -> Claim:
    def decide(study: Study) -> Judgement:
        found = _compared(study, Scope(how))[0][pair]
        low, high = found["change_low"], found["change_high"]
        return judgement(low, high, f"difference {found['change']:+.3f} [{low:+.3f}, {high:+.3f}]")

    which = "chosen by outcome" if how == OUTCOME else "drawn by lot"
    sentence = f"A detector's boxes as a soft prior score higher than the {pair.reference} (cases {which})."
    return Claim(sentence, decide, (*NEEDS, _detected(how)))


@PAPER_TABLES.register("S24")
class DetectorInLoop(PaperTable):
    number = "S24"
    title = "A text detector in the loop of open questions"
    about = (
        "Qwen at 70 %. Base grid is Target+Grid on the original images; OCR soft adds all boxes of a text detector to "
        "Target's score with weight 0.10, as these figures were made though the paper fixes 0.05 elsewhere; Metadata "
        "grid is Target+Grid again, on the same exported images (JPEG, no side above 1600 pixels) without their boxes, "
        "so that Δ meta is the boxes' part. The paper's cases were chosen by outcome, Base grid's own losses among "
        "them: whatever is done differently then looks better than Base grid, and Full's score is that of the rule. The "
        "second block has as many cases by lot."
    )
    blocks = tuple(
        Block(("Scope",), COLUMNS, _lines(how), detector_in_loop, needs, title=title, requires="a text detector")
        for how, title in CHOICES.items()
    )
    claims = tuple(_better_than(pair, how) for how in CHOICES for pair in PAIRS[:2])
