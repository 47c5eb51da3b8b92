"""Ranking without a threshold: does a positive get a larger margin than a negative?"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray
from sightline.statistics.metrics.base import metric
from sightline.statistics.metrics.populations import margin
from sightline.statistics.ranks import RankedMargins


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
