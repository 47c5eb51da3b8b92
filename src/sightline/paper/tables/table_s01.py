"""Table S1: budgets around the main operating points."""

from __future__ import annotations

from sightline.paper.cut import AT_ZERO, OWN
from sightline.paper.models import INTERNVL, LLAVA, MODELS, QWEN
from sightline.paper.paper_table import PAPER_TABLES, Block, Line, PaperTable, difference, metric_heads
from sightline.paper.probe_sets import DEVELOPMENT
from sightline.paper.tables.shared import COUNT, counted_metrics

METRICS = ("keep", "accuracy", "hfpr", "pn_average")


def _line(model: str, arm: str, method: str, n: int, *published: float) -> Line:
    cut = OWN if model == INTERNVL else AT_ZERO
    return Line((MODELS[model].short, method), (n, *published), model, DEVELOPMENT, arm, cut=cut)


LINES = (
    _line(QWEN, "full", "Full", 1000, 1.000, 0.787, 0.236, 1.000),
    _line(QWEN, "target:0.2", "Target (20%)", 1000, 0.200, 0.793, 0.224, 0.524),
    _line(QWEN, "target:0.25", "Target (25%)", 1000, 0.251, 0.795, 0.214, 0.565),
    _line(QWEN, "target:0.3", "Target (30%)", 1000, 0.301, 0.798, 0.222, 0.604),
    _line(LLAVA, "full", "Full", 1000, 1.000, 0.626, 0.304, 1.000),
    _line(LLAVA, "protected:0.2", "Protected (20%)", 1000, 0.201, 0.623, 0.542, 1.000),
    _line(LLAVA, "protected:0.4", "Protected (40%)", 1000, 0.401, 0.661, 0.298, 1.000),
    _line(LLAVA, "protected:0.5", "Protected (50%)", 1000, 0.500, 0.667, 0.308, 1.000),
    _line(INTERNVL, "full", "Full", 536, 1.000, 0.646, 0.306, 1.000),
    _line(INTERNVL, "target:0.4", "Target (40%)", 536, 0.400, 0.642, 0.396, 0.825),
    _line(INTERNVL, "target:0.5", "Target (50%)", 536, 0.500, 0.640, 0.179, 0.872),
    _line(INTERNVL, "soft_evidence:0.5", "Soft evidence (50%)", 536, 0.500, 0.653, 0.328, 0.893),
)


@PAPER_TABLES.register("S1")
class BudgetRows(PaperTable):
    number = "S1"
    title = "Representative budgets"
    about = (
        "Development set; InternVL on its held-out half, every arm at the threshold that is best for it on the other "
        "half. P/N avg. is the mean of coverage over positives and over negatives."
    )
    blocks = (Block(("Model", "Method"), (COUNT, *metric_heads(*METRICS)), LINES, counted_metrics(*METRICS)),)
    claims = (
        difference(
            "More budget keeps more of the source regions (Qwen Target, 30 % against 20 %).",
            model=QWEN, probes=DEVELOPMENT, arm="target:0.3", minus="target:0.2", metric="pn_average", expects="above",
        ),
    )  # fmt: skip
