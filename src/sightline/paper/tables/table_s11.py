"""Table S11: Qwen and LLaVA at a threshold chosen on the development set, beside t = 0."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sightline.core.table import TableColumn
from sightline.paper.cut import AT_ZERO, SHARED
from sightline.paper.models import LLAVA, MODELS, QWEN
from sightline.paper.paper_table import PAPER_TABLES, Block, Line, Measured, PaperTable, difference
from sightline.paper.probe_sets import CONFIRMATION
from sightline.paper.tables.shared import RANDOM_30, RANDOM_40, arm_line, cells

if TYPE_CHECKING:
    from sightline.paper.study import Study

ANSWERS = ("accuracy", "hfpr")


def _line(model: str, arm: str, method: str, *published: float) -> Line:
    return Line((MODELS[model].short, method), published, model, CONFIRMATION, arm, cut=SHARED)


LINES = (
    _line(QWEN, "full", "Full", 0.856, 0.812, 0.132, 0.783, 0.248),
    _line(QWEN, "target:0.3", "Target (30%)", 0.855, 0.810, 0.142, 0.786, 0.240),
    _line(QWEN, RANDOM_30, "Random (30%)", 0.776, 0.757, 0.072, 0.739, 0.160),
    _line(QWEN, "grid:0.3", "Grid (30%)", 0.755, 0.723, 0.080, 0.723, 0.142),
    _line(QWEN, "visionzip_qwen:0.3", "VisionZip (30%)", 0.788, 0.764, 0.110, 0.748, 0.198),
    _line(LLAVA, "full", "Full", 0.666, 0.623, 0.220, 0.625, 0.316),
    _line(LLAVA, "protected:0.4", "Protected (40%)", 0.694, 0.653, 0.224, 0.643, 0.352),
    _line(LLAVA, RANDOM_40, "Random (40%)", 0.712, 0.657, 0.150, 0.669, 0.256),
    _line(LLAVA, "target:0.4", "Target (40%)", 0.713, 0.653, 0.442, 0.624, 0.574),
    _line(LLAVA, "scope:0.4", "SCOPE (40%)", 0.644, 0.593, 0.454, 0.586, 0.562),
    _line(LLAVA, "anchorprune:0.4", "AnchorPrune (40%)", 0.642, 0.596, 0.474, 0.578, 0.586),
    _line(LLAVA, "coin:0.4", "CoIn (40%)", 0.664, 0.595, 0.562, 0.579, 0.674),
)


def both_thresholds(study: Study, line: Line) -> list[Measured]:
    shared, zero = (arm_line(study, replace(line, cut=cut), ("auroc", *ANSWERS)) for cut in (SHARED, AT_ZERO))
    return [*cells(zero, ("auroc",)), *cells(shared, ANSWERS), *cells(zero, ANSWERS)]


@PAPER_TABLES.register("S11")
class SharedThresholds(PaperTable):
    number = "S11"
    title = "Qwen and LLaVA: selector against threshold"
    about = (
        "Confirmation set. Shared: the most accurate threshold of the Full rows of the development set, for every arm "
        "(published: 1.062 for Qwen, 0.088 for LLaVA)."
    )
    blocks = (
        Block(
            ("Model", "Method"),
            (
                TableColumn("auroc", "AUROC", "score", interval=True),
                TableColumn("shared_accuracy", "Shared acc.", "score", interval=True),
                TableColumn("shared_hfpr", "Shared hFPR", "score", interval=True),
                TableColumn("zero_accuracy", "t = 0 acc.", "score", interval=True),
                TableColumn("zero_hfpr", "t = 0 hFPR", "score", interval=True),
            ),
            LINES,
            both_thresholds,
        ),
    )
    claims = tuple(
        difference(
            sentence, model=LLAVA, probes=CONFIRMATION, arm="target:0.4", minus="full", metric=metric, expects="above",
            cut=SHARED,
        )
        for sentence, metric in (
            ("LLaVA Target ranks answers better than Full.", "auroc"),
            ("At Full's threshold LLaVA Target still says yes to more near misses than Full.", "hfpr"),
        )
    )  # fmt: skip
