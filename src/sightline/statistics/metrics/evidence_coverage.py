"""How much of the annotated area survives: by lineage, by anchors alone, on positives and on negatives."""

from __future__ import annotations

from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray
from sightline.statistics.metrics.base import UNIT, metric


@metric(
    "pos_ecr",
    "PosECR",
    "covered share of the evidence area, by lineage, on positives",
    better="higher",
    over="positives with regions",
    needs=("ecr",),
    shown_in=("main", "terminal", "demo", "differences", "seeds", "interventions", "geometry", "leaderboard"),
    place=400,
    aliases=("ecr",),
    label_of_words="ECR",
    limits=UNIT,
    of_all_tokens=1.0,
)
def pos_ecr(rows: ArmRows) -> FloatArray:
    return rows.columns["ecr"]


@metric(
    "anchor_ecr",
    "AnchorECR",
    "covered share of the evidence area, by anchors alone, on positives",
    better="higher",
    over="positives with regions",
    needs=("anchor_ecr",),
    shown_in=("main", "differences", "geometry"),
    place=410,
    aliases=("ancecr",),
    limits=UNIT,
    of_all_tokens=1.0,
)
def anchor_ecr(rows: ArmRows) -> FloatArray:
    return rows.columns["anchor_ecr"]


@metric(
    "neg_src",
    "NegSRC",
    "covered share of the confusable source area, by lineage, on negatives",
    better="neither",
    over="negatives with regions",
    needs=("ecr",),
    shown_in=("main", "terminal", "differences"),
    place=420,
    answers="yes or no",
    limits=UNIT,
    of_all_tokens=1.0,
)
def neg_src(rows: ArmRows) -> FloatArray:
    return rows.columns["ecr"]


@metric(
    "pn_average",
    "P/N avg.",
    "(PosECR + NegSRC) / 2",
    better="neither",
    over="probes with regions",
    needs=("ecr",),
    form="macro",
    shown_in=("geometry",),
    place=430,
    answers="yes or no",
    limits=UNIT,
    of_all_tokens=1.0,
)
def pn_average(rows: ArmRows) -> FloatArray:
    return rows.columns["ecr"]


@metric(
    "anchor_pn_average",
    "Anchor avg.",
    "(AnchorECR on positives + the same on negatives) / 2",
    better="neither",
    over="probes with regions",
    needs=("anchor_ecr",),
    form="macro",
    shown_in=("geometry",),
    place=440,
    answers="yes or no",
    limits=UNIT,
    of_all_tokens=1.0,
)
def anchor_pn_average(rows: ArmRows) -> FloatArray:
    return rows.columns["anchor_ecr"]
