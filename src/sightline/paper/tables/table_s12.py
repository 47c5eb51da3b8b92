"""Table S12: evidence isolated, removed and brought back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sightline.core.table import TableColumn
from sightline.paper.cut import AT_ZERO, RISK, SHARED, Cut
from sightline.paper.models import INTERNVL, LLAVA, MODELS, QWEN
from sightline.paper.needs import Need
from sightline.paper.paper_table import (
    PAPER_TABLES,
    Block,
    Line,
    Measured,
    PaperTable,
    difference,
    metric_heads,
    usual_needs,
)
from sightline.paper.probe_sets import DEVELOPMENT
from sightline.paper.tables.shared import COUNT, arm_line, cells

if TYPE_CHECKING:
    from sightline.paper.study import Study

METRICS = ("accuracy", "hfpr", "keep", "pn_average")
REMOVED = "remove_evidence"


NOTES = {
    "full": "reference",
    "target:0.2": "main point for speed",
    f"target:0.3+{REMOVED}": "nothing of the evidence left",
    "target:0.3+restore": "share of the loss brought back",
    "target:0.3": "main point for quality",
    "evidence_only": "is the evidence enough?",
    "anti_evidence": "all but the evidence",
    "soft_evidence": "another operating point",
}
"""What the paper notes beside its lines, in our words, by the beginning of the arm."""


def _line(
    model: str, arm: str, prefix: str, n: int, *published: float, recovery: float | None = None, cut: Cut = AT_ZERO
) -> Line:
    note = next((words for start, words in NOTES.items() if arm.startswith(start)), "main point")
    return Line((MODELS[model].short, prefix, note), (n, *published, recovery), model, DEVELOPMENT, arm, cut=cut)


LINES = (
    _line(QWEN, "full", "Full", 1000, 0.787, 0.236, 1.000, 1.000),
    _line(QWEN, "target:0.2", "Target (20%)", 1000, 0.793, 0.224, 0.200, 0.524),
    _line(QWEN, "evidence_only:0.2", "Evidence only (20%)", 1000, 0.771, 0.242, 0.200, 1.000),
    _line(QWEN, "anti_evidence:0.2", "Anti-evidence (20%)", 1000, 0.672, 0.078, 0.200, 0.000),
    _line(QWEN, "target:0.3", "Target (30%)", 1000, 0.798, 0.222, 0.301, 0.604),
    _line(QWEN, "evidence_only:0.3", "Evidence only (30%)", 1000, 0.778, 0.234, 0.301, 1.000),
    _line(QWEN, "anti_evidence:0.3", "Anti-evidence (30%)", 1000, 0.693, 0.100, 0.301, 0.000),
    _line(QWEN, "target:0.3", "Deletion and restoration: selected", 1000, 0.798, 0.218, 0.301, 0.604),
    _line(QWEN, f"target:0.3+{REMOVED}", "... evidence removed", 1000, 0.769, 0.198, 0.299, 0.000),
    _line(
        QWEN, "target:0.3+restore_evidence=0.25", "... 25% of the evidence restored", 1000,
        0.787, 0.218, 0.299, 0.357, recovery=0.621,
    ),
    _line(
        QWEN, "target:0.3+restore_random=0.25", "... as many random tokens instead", 1000,
        0.772, 0.196, 0.299, 0.000, recovery=0.103,
    ),
    _line(LLAVA, "full", "Full", 1000, 0.626, 0.304, 1.000, 1.000),
    _line(LLAVA, "protected:0.4", "Protected (40%)", 1000, 0.661, 0.298, 0.401, 1.000),
    _line(LLAVA, "evidence_only:0.4", "Evidence only (40%)", 1000, 0.639, 0.238, 0.401, 1.000),
    _line(LLAVA, "anti_evidence:0.4", "Anti-evidence (40%)", 1000, 0.640, 0.204, 0.401, 0.000),
    _line(INTERNVL, "full", "Full, at its own threshold", 536, 0.646, 0.306, 1.000, 1.000, cut=SHARED),
    _line(INTERNVL, "soft_evidence:0.5", "Soft evidence (50%)", 536, 0.647, 0.175, 0.500, 0.893, cut=RISK),
    _line(INTERNVL, "evidence_only:0.5", "Evidence only (50%)", 536, 0.694, 0.310, 0.500, 1.000, cut=RISK),
    _line(INTERNVL, "anti_evidence:0.5", "Anti-evidence (50%)", 536, 0.562, 0.545, 0.500, 0.000, cut=RISK),
)  # fmt: skip


def with_recovery(study: Study, line: Line) -> list[Measured]:
    """recovery = (accuracy - removed) / (selected - removed), where evidence was restored."""
    found = arm_line(study, line, METRICS)
    recovery = Measured(None)
    if "+restore" in line.arm:
        plain = line.arm.partition("+")[0]
        selected, removed = (
            arm_line(study, Line((), (), line.model, line.probes, arm, cut=line.cut), METRICS)["accuracy"]
            for arm in (plain, f"{plain}+{REMOVED}")
        )
        lost = selected - removed
        recovery = Measured((found["accuracy"] - removed) / lost if lost else "nothing was lost")
    return [Measured(float(found["n_probes"])), *cells(found, METRICS), recovery]


def needs(line: Line) -> list[Need]:
    plain = line.arm.partition("+")[0]
    reference = [Need(line.model, line.probes, (plain, f"{plain}+{REMOVED}"))] if "+restore" in line.arm else []
    return [*usual_needs(line), *reference]


@PAPER_TABLES.register("S12")
class EvidenceControls(PaperTable):
    number = "S12"
    title = "Evidence isolated, removed and restored"
    about = (
        "Development set; on positives the box holds what supports the answer, on negatives only the confusable word. "
        "These arms read annotated boxes: diagnostics, not methods. InternVL on its held-out half at the one threshold "
        "that the paper calls risk-constrained, which is Target's own at 50 %."
    )
    blocks = (
        Block(
            ("Model", "Prefix", "Note"),
            (COUNT, *metric_heads(*METRICS), TableColumn("recovery", "Recovery", "percent")),
            LINES,
            with_recovery,
            needs,
        ),
    )
    claims = (
        difference(
            "Removing the evidence from Qwen's selection costs accuracy.",
            model=QWEN, probes=DEVELOPMENT, arm=f"target:0.3+{REMOVED}", minus="target:0.3", metric="accuracy",
            expects="below",
        ),
        difference(
            "Evidence put back brings back more accuracy than as many random tokens.",
            model=QWEN, probes=DEVELOPMENT, arm="target:0.3+restore_evidence=0.25",
            minus="target:0.3+restore_random=0.25", metric="accuracy", expects="above",
        ),
    )  # fmt: skip
