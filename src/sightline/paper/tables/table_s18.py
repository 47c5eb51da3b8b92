"""Table S18: selectors that look at boxes when nobody hands them the annotation."""

from __future__ import annotations

from sightline.paper.cut import AT_ZERO, RISK
from sightline.paper.models import INTERNVL, LLAVA, MODELS
from sightline.paper.paper_table import PAPER_TABLES, Block, Line, PaperTable, metric_heads
from sightline.paper.probe_sets import DEVELOPMENT
from sightline.paper.study import DETECTOR
from sightline.paper.tables.shared import metrics_of

METRICS = ("accuracy", "hfpr", "keep", "pos_ecr", "neg_src")
SOURCES = {
    "GT boxes": "annotation",
    "Simulated detector": "detected_like",
    "EasyOCR": DETECTOR,
    "Heavy jitter": "jitter_heavy",
    "Missing boxes": "missing",
}


ARMS = {
    LLAVA: ("protected:0.4", "Protected (40%)"),
    INTERNVL: ("soft_evidence:0.5", "Soft evidence (50%)"),
}


def _line(model: str, source: str, *published: float) -> Line:
    arm, selector = (
        ("protected:0.4", "Protected (40%)") if model == LLAVA else ("soft_evidence:0.5", "Soft evidence (50%)")
    )
    return Line(
        (MODELS[model].short, source, selector),
        published,
        model,
        DEVELOPMENT,
        arm,
        box_source=SOURCES[source],
        cut=RISK if model == INTERNVL else AT_ZERO,
    )


LINES = (
    _line(LLAVA, "GT boxes", 0.661, 0.298, 0.400, 1.000, 1.000),
    _line(LLAVA, "Simulated detector", 0.660, 0.328, 0.400, 0.896, 0.919),
    _line(LLAVA, "EasyOCR", 0.639, 0.322, 0.400, 0.657, 0.652),
    _line(LLAVA, "Heavy jitter", 0.657, 0.334, 0.400, 0.977, 0.980),
    _line(LLAVA, "Missing boxes", 0.658, 0.324, 0.400, 0.402, 0.393),
    _line(INTERNVL, "GT boxes", 0.647, 0.175, 0.500, 0.902, 0.883),
    _line(INTERNVL, "Simulated detector", 0.646, 0.187, 0.500, 0.902, 0.874),
    _line(INTERNVL, "EasyOCR", 0.649, 0.157, 0.500, 0.899, 0.876),
    _line(INTERNVL, "Heavy jitter", 0.649, 0.179, 0.500, 0.900, 0.878),
    _line(INTERNVL, "Missing boxes", 0.642, 0.179, 0.500, 0.887, 0.854),
)


@PAPER_TABLES.register("S18")
class BoxSources(PaperTable):
    number = "S18"
    title = "Box sources"
    about = (
        "The selector sees the boxes of the named source; coverage is always that of the annotated boxes. Development "
        "set; InternVL on its held-out half at the threshold that the paper calls risk-constrained."
    )
    blocks = (Block(("Model", "Boxes", "Selector"), metric_heads(*METRICS), LINES, metrics_of(*METRICS)),)
