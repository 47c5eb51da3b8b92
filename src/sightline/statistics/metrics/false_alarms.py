"""Saying yes: how often at all, and how often to a word that is not there."""

from __future__ import annotations

import numpy as np

from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray
from sightline.statistics.metrics.base import metric
from sightline.statistics.metrics.populations import said_yes


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
