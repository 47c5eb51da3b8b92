"""Table S5: when a positive was answered right, how much of its evidence was left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sightline.core.table import TableColumn
from sightline.errors import SightlineError
from sightline.paper.models import LLAVA, MODELS, QWEN
from sightline.paper.needs import Need
from sightline.paper.paper_table import PAPER_TABLES, Block, Claim, Judgement, Line, Measured, PaperTable
from sightline.paper.probe_sets import CONFIRMATION
from sightline.paper.tables.shared import RANDOM_30, RANDOM_40
from sightline.statistics.correct_positives import CorrectPositives, correct_positive_provenance
from sightline.statistics.summaries import arm_rows

if TYPE_CHECKING:
    from sightline.paper.study import Study


Percentages = tuple[float, float, float]
"""A share and Wilson's interval."""


def _line(
    model: str, arm: str, method: str, correct: int, lineage: float, anchor: float, weak: Percentages, none: Percentages
) -> Line:
    shares = (Measured(*(figure / 100 for figure in share)) for share in (weak, none))
    words = (f"{MODELS[model].short} {method}",)
    return Line(words, (correct, lineage, anchor, *shares), model, CONFIRMATION, arm)


LINES = (
    _line(QWEN, "target:0.3", "Target (30%)", 406, 0.672, 0.672, (27.8, 23.7, 32.4), (13.1, 10.1, 16.7)),
    _line(QWEN, RANDOM_30, "Random (30%)", 319, 0.289, 0.289, (71.2, 66.0, 75.9), (37.0, 31.9, 42.4)),
    _line(QWEN, "grid:0.3", "Grid (30%)", 294, 0.371, 0.371, (65.3, 59.7, 70.5), (20.7, 16.5, 25.7)),
    _line(LLAVA, "protected:0.4", "Protected (40%)", 319, 1.000, 1.000, (0.0, 0.0, 1.2), (0.0, 0.0, 1.2)),
    _line(LLAVA, RANDOM_40, "Random (40%)", 297, 0.374, 0.374, (63.6, 58.0, 68.9), (31.0, 26.0, 36.5)),
    _line(LLAVA, "target:0.4", "Target (40%)", 411, 0.486, 0.486, (52.1, 47.2, 56.9), (27.0, 22.9, 31.5)),
    _line(LLAVA, "scope:0.4", "SCOPE (40%)", 367, 0.637, 0.637, (34.3, 29.7, 39.3), (16.9, 13.4, 21.1)),
    _line(LLAVA, "anchorprune:0.4", "AnchorPrune (40%)", 371, 0.650, 0.650, (33.2, 28.6, 38.1), (18.1, 14.5, 22.3)),
    _line(
        LLAVA,
        "scope:0.4:alpha=0",
        "SCOPE pure coverage (40%)",
        403,
        0.626,
        0.626,
        (35.5, 31.0, 40.3),
        (15.6, 12.4, 19.5),
    ),
    _line(LLAVA, "coin:0.4", "CoIn (40%)", 416, 0.677, 0.677, (31.0, 26.8, 35.6), (14.2, 11.2, 17.9)),
    _line(LLAVA, "visionzip:0.4", "VisionZip (40%)", 417, 1.000, 0.576, (0.0, 0.0, 0.9), (0.0, 0.0, 0.9)),
)


def _found(study: Study, model: str, arm: str) -> CorrectPositives:
    rows = study.rows(model, CONFIRMATION)
    own = rows[rows["arm"] == study.arm(model, arm)]
    if own.empty:
        raise SightlineError(f"{arm} has not been measured")
    return correct_positive_provenance(arm_rows(own), draws=study.options.draws)


def provenance(study: Study, line: Line) -> list[Measured]:
    found = _found(study, line.model, line.arm)
    shares = (Measured(share.rate, *share.wilson) for share in (found.weakly_supported, found.unsupported))
    return [Measured(float(found.correct)), Measured(found.mean_ecr), Measured(found.mean_anchor_ecr), *shares]


def _less_unsupported(study: Study) -> Judgement:
    target, random = (_found(study, QWEN, arm).unsupported for arm in ("target:0.3", RANDOM_30))
    words = f"Target {target.rate:.1%}, Random {random.rate:.1%} of right yes answers are unsupported"
    if target.wilson[1] < random.wilson[0]:
        return Judgement("holds", words)
    return Judgement("fails" if target.wilson[0] > random.wilson[1] else "open", words)


def _merging_hides(study: Study) -> Judgement:
    found = _found(study, LLAVA, "visionzip:0.4")
    words = f"lineage {found.mean_ecr:.3f}, anchors {found.mean_anchor_ecr:.3f}"
    return Judgement("holds" if found.mean_ecr > found.mean_anchor_ecr else "fails", words)


@PAPER_TABLES.register("S5")
class CorrectPositiveProvenance(PaperTable):
    number = "S5"
    title = "Correct positives and their evidence"
    about = (
        "Confirmation positives answered yes at t = 0. Shares have Wilson's interval; a method that merges every token "
        "has full lineage by construction, and its anchors tell what can still be located."
    )
    blocks = (
        Block(
            ("Method",),
            (
                TableColumn("correct", "Correct positives", "count"),
                TableColumn("ecr", "PosECR", "score"),
                TableColumn("anchor_ecr", "AnchorECR", "score"),
                TableColumn("weakly", "PosECR < 0.5", "percent", interval=True),
                TableColumn("unsupported", "PosECR = 0", "percent", interval=True),
            ),
            LINES,
            provenance,
        ),
    )
    claims = (
        Claim(
            "Fewer right answers of Qwen Target than of Random have no evidence left.",
            _less_unsupported,
            (Need(QWEN, CONFIRMATION, ("target:0.3", RANDOM_30)),),
        ),
        Claim(
            "Merging keeps every source in the lineage, not in the anchors (LLaVA VisionZip).",
            _merging_hides,
            (Need(LLAVA, CONFIRMATION, ("visionzip:0.4",)),),
        ),
    )
