"""Table S16: published methods on LLaVA over budgets."""

from __future__ import annotations

from sightline.paper.models import LLAVA
from sightline.paper.paper_table import PAPER_TABLES, Block, Line, PaperTable, difference, metric_heads
from sightline.paper.probe_sets import DEVELOPMENT
from sightline.paper.tables.shared import metrics_of

METRICS = (
    "accuracy", "hfpr", "positive_accuracy", "negative_accuracy", "keep", "pn_average", "anchor_pn_average",
)  # fmt: skip


def _line(arm: str, method: str, *published: float) -> Line:
    budget = arm.split(":")[1]
    return Line((method, f"{float(budget):.2f}"), published, LLAVA, DEVELOPMENT, arm)


LINES = (
    _line("protected:0.2", "Protected", 0.623, 0.542, 0.788, 0.458, 0.201, 1.000, 1.000),
    _line("visionzip:0.2", "VisionZip", 0.554, 0.780, 0.888, 0.220, 0.201, 1.000, 0.336),
    _line("fastv:0.2", "FastV", 0.500, 0.000, 0.000, 1.000, 0.201, 0.270, 0.270),
    _line("protected:0.3", "Protected", 0.627, 0.440, 0.694, 0.560, 0.300, 1.000, 1.000),
    _line("visionzip:0.3", "VisionZip", 0.555, 0.734, 0.844, 0.266, 0.300, 1.000, 0.466),
    _line("fastv:0.3", "FastV", 0.500, 0.000, 0.000, 1.000, 0.300, 0.376, 0.376),
    _line("protected:0.4", "Protected", 0.661, 0.298, 0.620, 0.702, 0.401, 1.000, 1.000),
    _line("scope:0.4", "SCOPE", 0.598, 0.508, 0.704, 0.492, 0.401, 0.642, 0.642),
    _line("anchorprune:0.4", "AnchorPrune", 0.591, 0.570, 0.752, 0.430, 0.401, 0.648, 0.648),
    _line("scope:0.4:alpha=0", "SCOPE pure coverage", 0.587, 0.630, 0.804, 0.370, 0.401, 0.623, 0.623),
    _line("coin:0.4", "CoIn", 0.595, 0.632, 0.822, 0.368, 0.401, 0.689, 0.689),
    _line("visionzip:0.4", "VisionZip", 0.580, 0.650, 0.810, 0.350, 0.401, 1.000, 0.575),
    _line("fastv:0.4", "FastV", 0.500, 0.000, 0.000, 1.000, 0.401, 0.494, 0.494),
    _line("protected:0.5", "Protected", 0.667, 0.308, 0.642, 0.692, 0.500, 1.000, 1.000),
    _line("visionzip:0.5", "VisionZip", 0.542, 0.834, 0.918, 0.166, 0.500, 1.000, 0.661),
    _line("fastv:0.5", "FastV", 0.500, 0.000, 0.000, 1.000, 0.500, 0.604, 0.604),
)


@PAPER_TABLES.register("S16")
class ExternalMethods(PaperTable):
    number = "S16"
    title = "Published methods on LLaVA over budgets"
    about = (
        "Development set at t = 0. Protected reads annotated boxes and is no rival of the others. The published FastV "
        "rows come from a mask that let text see its own answer; here FastV prunes causally."
    )
    blocks = (Block(("Method", "Ratio"), metric_heads(*METRICS), LINES, metrics_of(*METRICS)),)
    claims = (
        difference(
            "Covering features alone makes SCOPE say yes to more near misses.",
            model=LLAVA, probes=DEVELOPMENT, arm="scope:0.4:alpha=0", minus="scope:0.4", metric="hfpr",
            expects="above",
        ),
    )  # fmt: skip
