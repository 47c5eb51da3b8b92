"""What of the evidence the vision tower sees at all, and coverage of that part: what pruning lost, not cropping."""

from __future__ import annotations

import numpy as np

from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray
from sightline.statistics.metrics.base import UNIT, metric


@metric(
    "visible_evidence",
    "Visible",
    "share of the evidence area that the vision tower sees at all, whatever is pruned, on positives",
    better="neither",
    over="positives with regions",
    needs=("visible",),
    shown_in=("geometry",),
    place=390,
    limits=UNIT,
    of_all_tokens=1.0,
)
def visible_evidence(rows: ArmRows) -> FloatArray:
    return rows.columns["visible"]


@metric(
    "relative_pos_ecr",
    "Relative PosECR",
    "covered share of the visible evidence area, by lineage, on positives: ECR / visible, 1 for Full",
    better="higher",
    over="positives with visible evidence",
    needs=("ecr", "visible"),
    shown_in=("main", "terminal", "geometry"),
    place=405,
    repeats="pos_ecr",
    label_of_words="Relative ECR",
    limits=UNIT,
    of_all_tokens=1.0,
)
def relative_pos_ecr(rows: ArmRows) -> FloatArray:
    return _of_visible(rows, "ecr")


@metric(
    "relative_anchor_ecr",
    "Relative AnchorECR",
    "covered share of the visible evidence area, by anchors alone, on positives",
    better="higher",
    over="positives with visible evidence",
    needs=("anchor_ecr", "visible"),
    shown_in=("geometry",),
    place=415,
    repeats="anchor_ecr",
    limits=UNIT,
    of_all_tokens=1.0,
)
def relative_anchor_ecr(rows: ArmRows) -> FloatArray:
    return _of_visible(rows, "anchor_ecr")


@metric(
    "relative_neg_src",
    "Relative NegSRC",
    "covered share of the visible part of the confusable source area, by lineage, on negatives",
    better="neither",
    over="negatives with visible evidence",
    needs=("ecr", "visible"),
    shown_in=("geometry",),
    place=425,
    repeats="neg_src",
    answers="yes or no",
    limits=UNIT,
    of_all_tokens=1.0,
)
def relative_neg_src(rows: ArmRows) -> FloatArray:
    return _of_visible(rows, "ecr")


def _of_visible(rows: ArmRows, name: str) -> FloatArray:
    """(n,) a coverage over what is visible; NaN where nothing is, on probes that no such metric counts."""
    visible = rows.columns["visible"]
    relative: FloatArray = np.full(len(visible), np.nan)
    return np.divide(rows.columns[name], visible, out=relative, where=visible > 0.0)
