"""Right answers: over all probes, over positives, over negatives, over both alike."""

from __future__ import annotations

from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray
from sightline.statistics.metrics.base import metric
from sightline.statistics.metrics.populations import answered_right


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
    shown_in=(),
    place=135,
    answers="yes or no",
)
def balanced_accuracy(rows: ArmRows) -> FloatArray:
    return answered_right(rows)
