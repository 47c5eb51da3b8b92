"""Whether what reaches the model of the evidence could still be read: pixels of character height."""

from __future__ import annotations

import numpy as np

from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray
from sightline.statistics.metrics.base import metric

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
