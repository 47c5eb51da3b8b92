"""Metrics of answers: how often they are right, how sure, how often a yes is false, how often a right yes has no
evidence.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from sightline.statistics.arm_rows import ArmRows, FloatArray, IntArray
from sightline.statistics.metrics.base import UNIT, answered_right, margin, metric, said_yes
from sightline.statistics.ranks import RankedMargins

# Right answers: over all probes, over positives, over negatives, over both alike.


@metric(
    "accuracy",
    "Accuracy",
    "share of right answers",
    better="higher",
    needs=("prediction",),
    binary=True,
    shown_in=("main", "terminal", "demo", "differences", "seeds", "interventions", "leaderboard"),
    place=100,
)
def accuracy(rows: ArmRows) -> FloatArray:
    return answered_right(rows)


@metric(
    "positive_accuracy",
    "Pos. acc.",
    "share of right answers on positives",
    better="higher",
    over="positives",
    needs=("yes",),
    binary=True,
    shown_in=("differences", "calibration"),
    place=120,
    answers="yes or no",
)
def positive_accuracy(rows: ArmRows) -> FloatArray:
    return answered_right(rows)


@metric(
    "negative_accuracy",
    "Neg. acc.",
    "share of right answers on negatives",
    better="higher",
    over="negatives",
    needs=("yes",),
    binary=True,
    shown_in=("calibration",),
    place=130,
    answers="yes or no",
)
def negative_accuracy(rows: ArmRows) -> FloatArray:
    return answered_right(rows)


@metric(
    "balanced_accuracy",
    "Balanced accuracy",
    "mean of the shares of right answers on positives and on negatives; one half for whoever does not look",
    better="higher",
    needs=("yes",),
    form="macro",
    limits=UNIT,
    shown_in=(),
    place=135,
    answers="yes or no",
)
def balanced_accuracy(rows: ArmRows) -> FloatArray:
    return answered_right(rows)


# Ranking without a threshold: does a positive get a larger margin than a negative?


@metric(
    "auroc",
    "AUROC",
    "P(margin of a positive > margin of a negative), ties one half; threshold-free",
    better="higher",
    needs=("margin",),
    form="auroc",
    shown_in=("main", "differences", "interventions"),
    place=200,
    answers="yes or no",
)
def auroc_of_arm(rows: ArmRows) -> FloatArray:
    return margin(rows)


def auroc(labels: ArrayLike, margins: ArrayLike) -> float:
    """Rank-sum AUROC with average ranks for ties; NaN when a class is empty."""
    label = np.asarray(labels).astype(bool)
    everything = np.zeros(len(label), dtype=np.int64)
    ranked = RankedMargins.of(label, np.asarray(margins, dtype=np.float64), everything)
    return float(ranked.auroc(np.ones((1, 1)))[0])


# Do probabilities mean what they say? p(yes) = sigmoid(margin), at t = 0 whatever threshold the arm uses.

ECE_BINS = 15
_LOG_FLOOR = -math.log(1e-12)


@metric(
    "ece",
    "ECE-15",
    "expected calibration error of max(p, 1 - p), p = sigmoid(margin), 15 equal bins, t = 0",
    better="lower",
    needs=("margin",),
    form="ece",
    shown_in=("calibration",),
    place=300,
    answers="yes or no",
)
def ece(rows: ArmRows) -> FloatArray:
    """Confidence minus correctness of the likelihoods themselves."""
    margins = margin(rows)
    return np.asarray(expit(np.abs(margins)) - ((margins >= 0) == rows.labels))


@metric(
    "brier",
    "Brier",
    "mean (p - label)^2, p = sigmoid(margin)",
    better="lower",
    needs=("margin",),
    shown_in=("calibration",),
    place=310,
    answers="yes or no",
    limits=UNIT,
)
def brier(rows: ArmRows) -> FloatArray:
    return np.asarray(np.square(expit(-_margin_of_the_label(rows))))


@metric(
    "nll",
    "NLL",
    "mean -log p(label), p = sigmoid(margin) clamped at 1e-12",
    better="lower",
    needs=("margin",),
    shown_in=("calibration",),
    place=320,
    answers="yes or no",
)
def nll(rows: ArmRows) -> FloatArray:
    return np.minimum(np.logaddexp(0.0, -_margin_of_the_label(rows)), _LOG_FLOOR)


def _margin_of_the_label(rows: ArmRows) -> FloatArray:
    """(n,) the margin in favour of the right answer."""
    return np.asarray(np.where(rows.labels, margin(rows), -margin(rows)))


def ece_bin(confidence: FloatArray) -> IntArray:
    """Index of the left-closed bin [i/15, (i+1)/15) that a confidence falls into; 1.0 belongs to the last."""
    edges = np.arange(1, ECE_BINS) / ECE_BINS
    return np.searchsorted(edges, confidence, side="right")


def expected_calibration_error(confidence: ArrayLike, correct: ArrayLike) -> float:
    """ECE = sum_b (n_b / n) |mean confidence - mean correctness| over 15 equal bins."""
    sure = np.asarray(confidence, dtype=np.float64)
    in_bin = ece_bin(sure)[:, None] == np.arange(ECE_BINS)
    gaps = ((sure - np.asarray(correct, dtype=np.float64))[:, None] * in_bin).sum(axis=0)
    return float(np.abs(gaps).sum() / len(sure))


# Saying yes: how often at all, and how often to a word that is not there.


@metric(
    "yes_rate",
    "Yes rate",
    "share answered yes",
    better="neither",
    needs=("yes",),
    binary=True,
    shown_in=("calibration",),
    place=110,
    answers="yes or no",
)
def yes_rate(rows: ArmRows) -> FloatArray:
    return said_yes(rows).astype(np.float64)


@metric(
    "hfpr",
    "hFPR",
    "hard-negative false-positive rate: share of negatives answered yes",
    better="lower",
    over="negatives",
    needs=("yes",),
    binary=True,
    shown_in=("main", "terminal", "demo", "differences", "seeds", "interventions"),
    place=140,
    aliases=("fpr",),
    answers="yes or no",
)
def hfpr(rows: ArmRows) -> FloatArray:
    return said_yes(rows).astype(np.float64)


# How sharp coverage is: coarse cells cover a region and much beside it.


@metric(
    "lpp",
    "LPP",
    "local provenance precision: share of the kept cells touching a region that lies inside it",
    better="higher",
    over="positives with regions",
    needs=("lpp",),
    shown_in=("geometry",),
    place=500,
    limits=UNIT,
)
def lpp(rows: ArmRows) -> FloatArray:
    return rows.columns["lpp"]


@metric(
    "geo_f1",
    "Geo-F1",
    "mean harmonic mean of ECR and LPP",
    better="higher",
    over="positives with regions",
    needs=("geo_f1",),
    shown_in=("geometry",),
    place=510,
    limits=UNIT,
)
def geo_f1(rows: ArmRows) -> FloatArray:
    return rows.columns["geo_f1"]


# Coverage counted instead of measured: centres of regions, cells that touch them.


@metric(
    "center_recall",
    "CenterR",
    "share of regions whose centre lies in a kept cell",
    better="higher",
    over="probes with regions",
    needs=("center_recall",),
    shown_in=("geometry",),
    place=600,
    limits=UNIT,
    of_all_tokens=1.0,
)
def center_recall(rows: ArmRows) -> FloatArray:
    return rows.columns["center_recall"]


@metric(
    "patch_recall",
    "PatchR",
    "kept share of the cells that touch a region",
    better="higher",
    over="probes with regions",
    needs=("patch_recall",),
    shown_in=("geometry",),
    place=610,
    limits=UNIT,
    of_all_tokens=1.0,
)
def patch_recall(rows: ArmRows) -> FloatArray:
    return rows.columns["patch_recall"]


# Right answers that nothing supports: the arm says yes, rightly, and the evidence is not among its tokens.

LOW_COVERAGE = 0.5
"""Coverage below this is little."""
ZERO_COVERAGE = 1e-12
"""Coverage at or below this counts as none at all."""


@metric(
    "weakly_supported",
    "Weakly supported",
    "share of correct positives whose evidence is mostly gone (ECR < 0.5)",
    better="lower",
    over="correctly answered positives with regions",
    needs=("prediction", "ecr"),
    share=True,
    shown_in=("differences",),
    place=800,
)
def weakly_supported(rows: ArmRows) -> FloatArray:
    return (rows.columns["ecr"] < LOW_COVERAGE).astype(np.float64)


@metric(
    "unsupported",
    "Unsupported",
    "share of correct positives with no evidence cell left (ECR <= 1e-12)",
    better="lower",
    over="correctly answered positives with regions",
    needs=("prediction", "ecr"),
    share=True,
    shown_in=("main", "terminal", "demo", "differences", "leaderboard"),
    place=810,
)
def unsupported(rows: ArmRows) -> FloatArray:
    return (rows.columns["ecr"] <= ZERO_COVERAGE).astype(np.float64)


@metric(
    "unsupported_by_pruning",
    "Unsupported by pruning",
    "share of correct positives with visible evidence of which no cell is left: what cropping cut away does not count",
    better="lower",
    over="correctly answered positives with visible evidence",
    needs=("prediction", "ecr", "visible"),
    share=True,
    shown_in=("main",),
    place=820,
    repeats="unsupported",
)
def unsupported_by_pruning(rows: ArmRows) -> FloatArray:
    return (rows.columns["ecr"] <= ZERO_COVERAGE).astype(np.float64)
