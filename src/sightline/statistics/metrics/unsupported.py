"""Right answers that nothing supports: the arm says yes, rightly, and the evidence is not among its tokens."""

from __future__ import annotations

import numpy as np

from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray
from sightline.statistics.metrics.base import metric

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
    former_names=("low_coverage",),
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
    former_names=("zero_coverage",),
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
