"""Metrics of evidence: how much of it the kept cells cover, and how much of that the model could see and read."""

from __future__ import annotations

import numpy as np

from sightline.statistics.arm_rows import ArmRows, FloatArray
from sightline.statistics.metrics.base import UNIT, metric

# How much of the annotated area survives: by lineage, by anchors alone, on positives and on negatives.


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


# The budget that was really spent.


@metric(
    "keep",
    "Keep",
    "kept share of visual tokens",
    better="neither",
    needs=("keep",),
    shown_in=("main", "terminal"),
    place=10,
    with_interval=False,
    limits=UNIT,
)
def keep(rows: ArmRows) -> FloatArray:
    return rows.columns["keep"]


# Whether what reaches the model of the evidence could still be read: pixels of character height.

LEGIBLE_FROM = 8.0
"""Pixels of character height below which letters run into one another; text recognisers give up about there."""


@metric(
    "legibility",
    "Legibility px",
    "pixels of character height that reach the model for the least legible region, on positives",
    better="higher",
    over="positives with regions",
    needs=("legibility",),
    shown_in=("leaderboard",),
    place=720,
)
def legibility(rows: ArmRows) -> FloatArray:
    return rows.columns["legibility"]


@metric(
    "illegible",
    "Illegible",
    f"share of positives of whose evidence fewer than {LEGIBLE_FROM:g} pixels of character height reach the model",
    better="lower",
    over="positives with regions",
    needs=("legibility",),
    share=True,
    shown_in=(),
    place=730,
)
def illegible(rows: ArmRows) -> FloatArray:
    return (rows.columns["legibility"] < LEGIBLE_FROM).astype(np.float64)


# Probes with several regions: the least covered one decides.


@metric(
    "worst_region",
    "Worst region",
    "ECR of the least covered region of a probe",
    better="higher",
    over="positives with regions",
    needs=("worst_region",),
    shown_in=("geometry",),
    place=700,
    limits=UNIT,
    of_all_tokens=1.0,
)
def worst_region(rows: ArmRows) -> FloatArray:
    return rows.columns["worst_region"]


@metric(
    "all_half",
    "All >= 0.5",
    "share of probes in which every region has ECR >= 0.5",
    better="higher",
    over="positives with regions",
    needs=("all_half",),
    binary=True,
    shown_in=("geometry",),
    place=710,
    of_all_tokens=1.0,
)
def all_half(rows: ArmRows) -> FloatArray:
    return rows.columns["all_half"]


# What of the evidence the vision tower sees at all, and coverage of that part: what pruning lost, not cropping.


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
