"""Table S18: selectors that look at boxes when nobody hands them the annotation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sightline.core.table import TableColumn
from sightline.paper.cut import AT_ZERO, RISK
from sightline.paper.models import INTERNVL, LLAVA, MODELS
from sightline.paper.paper_table import (
    PAPER_TABLES,
    Block,
    Claim,
    Line,
    Measured,
    PaperTable,
    Side,
    difference,
    metric_heads,
)
from sightline.paper.probe_sets import DEVELOPMENT
from sightline.paper.study import DETECTOR
from sightline.paper.tables.shared import metrics_of

if TYPE_CHECKING:
    from sightline.paper.study import Study

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
    arm, selector = ARMS[model]
    cut = RISK if model == INTERNVL else AT_ZERO
    words = (MODELS[model].short, source, selector)
    return Line(words, published, model, DEVELOPMENT, arm, box_source=SOURCES[source], cut=cut)


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


def detector_itself(study: Study, line: Line) -> list[Measured]:
    """Mean time of an image, share of annotated boxes that no detection meets, mean best IoU."""
    run = study.run(line.model, line.probes, line.box_source)
    quality, rows = run.manifest.get("boxes") or {}, run.frame()
    took = float(rows["boxes_ms"].astype(float).mean()) if "boxes_ms" in rows else math.nan
    return [Measured(f"{took:.1f}"), *(Measured(float(quality.get(name, math.nan))) for name in FOUND)]


FOUND = ("missing_rate", "best_iou")


def _keeps(sentence: str, model: str, other: str, expects: Side) -> Claim:
    with_detector, minus = (_line(model, source) for source in ("EasyOCR", other))
    return difference(
        sentence, model=model, probes=DEVELOPMENT, arm=with_detector.arm, minus=minus, metric="pos_ecr",
        expects=expects, cut=with_detector.cut, box_source=DETECTOR,
    )  # fmt: skip


@PAPER_TABLES.register("S18")
class BoxSources(PaperTable):
    number = "S18"
    title = "Box sources"
    about = (
        "The selector sees the boxes of the named source; coverage is always that of the annotated boxes. Development "
        "set; InternVL on its held-out half at the threshold that the paper calls risk-constrained."
    )
    blocks = (
        Block(("Model", "Boxes", "Selector"), metric_heads(*METRICS), LINES, metrics_of(*METRICS)),
        Block(
            ("Detector",),
            (
                TableColumn("ms", "ms/image", "words"),
                TableColumn("missing_rate", "Boxes missed", "percent"),
                TableColumn("best_iou", "Best IoU", "score"),
            ),
            (Line(("EasyOCR",), ("254.4", 0.564, 0.155), LLAVA, DEVELOPMENT, ARMS[LLAVA][0], box_source=DETECTOR),),
            detector_itself,
            title="The detector itself (from the caption)",
        ),
    )
    claims = (
        _keeps("LLaVA Protected keeps more of the support with a detector's boxes than with none.", LLAVA,
               "Missing boxes", "above"),
        _keeps("InternVL Soft evidence keeps as much with a detector's boxes as with annotated ones, within 0.02.",
               INTERNVL, "GT boxes", "equal"),
    )  # fmt: skip
