"""Do probabilities mean what they say? p(yes) = sigmoid(margin), at t = 0 whatever threshold the arm uses."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray, IntArray
from sightline.statistics.metrics.base import UNIT, metric
from sightline.statistics.metrics.populations import margin

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
