"""Table S3: the same method with its scores dealt to the wrong tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sightline.core.table import TableColumn
from sightline.paper.cut import AT_ZERO, OWN
from sightline.paper.models import INTERNVL, LLAVA, MODELS, QWEN
from sightline.paper.paper_table import (
    PAPER_TABLES,
    Block,
    Line,
    Measured,
    PaperTable,
    difference,
    metric_heads,
    paired,
)
from sightline.paper.probe_sets import DEVELOPMENT
from sightline.paper.tables.shared import COUNT, arm_line, cells

if TYPE_CHECKING:
    from sightline.paper.study import Study

METRICS = ("accuracy", "hfpr", "keep", "pn_average")
CHANGE = TableColumn("change", "Δ avg.", "signed", interval=True, help="P/N average minus the method's, paired.")


def _pair(
    model: str, budget: float, method: str, name: str, n: int, own: tuple[float, ...], shuffled: tuple[float, ...]
) -> tuple[Line, Line]:
    """The method and its shuffled control, which is compared with it."""
    group = f"{MODELS[model].short} ({budget:.0%})"
    cut = OWN if model == INTERNVL else AT_ZERO
    arm = f"{method}:{budget}"
    control = f"shuffled:{budget}:seed=13"
    return (
        Line((group, name), (n, *own, None), model, DEVELOPMENT, arm, cut=cut),
        Line((group, "Shuffled score"), (n, *shuffled), model, DEVELOPMENT, control, cut=cut, about=arm),
    )


LINES = (
    *_pair(QWEN, 0.2, "target", "Target", 1000, (0.793, 0.224, 0.200, 0.524), (0.718, 0.122, 0.200, 0.192, -0.332)),
    *_pair(QWEN, 0.3, "target", "Target", 1000, (0.798, 0.222, 0.301, 0.604), (0.739, 0.158, 0.301, 0.288, -0.317)),
    *_pair(
        LLAVA, 0.4, "protected", "Protected", 1000, (0.661, 0.298, 0.401, 1.000), (0.653, 0.278, 0.401, 0.412, -0.588)
    ),
    *_pair(
        INTERNVL, 0.5, "soft_evidence", "Soft evidence", 536,
        (0.653, 0.328, 0.500, 0.893), (0.634, 0.183, 0.500, 0.780, -0.113),
    ),
)  # fmt: skip


def with_change(study: Study, line: Line) -> list[Measured]:
    found = arm_line(study, line, METRICS)
    change = paired(study, line, line.about, "pn_average") if line.about else Measured(None)
    return [Measured(float(found["n_probes"])), *cells(found, METRICS), change]


@PAPER_TABLES.register("S3")
class ShuffledControls(PaperTable):
    number = "S3"
    title = "Shuffled-score controls at the same budgets"
    about = (
        "Development set; InternVL on its held-out half with every arm's own threshold. A shuffled control keeps the "
        "tokens that its method would keep if the scores belonged to other tokens."
    )
    blocks = (Block(("Group", "Method"), (COUNT, *metric_heads(*METRICS), CHANGE), LINES, with_change),)
    claims = tuple(
        difference(
            f"Shuffled scores keep less of the source regions than {line.about} ({MODELS[line.model].short}).",
            model=line.model, probes=DEVELOPMENT, arm=line.arm, minus=line.about, metric="pn_average", expects="below",
            cut=line.cut,
        )
        for line in LINES
        if line.about
    )  # fmt: skip
