"""Mean reciprocal rank of the right word: 1 where it is always first, 1/3 where it is always last of three."""

from __future__ import annotations

from sightline.statistics.arm_rows import ArmRows, FloatArray
from sightline.statistics.metrics import metric


@metric(
    "reciprocal_rank",
    "MRR",
    "mean of one over the rank of the right word",
    better="higher",
    needs=("rank",),
    shown_in=(),  # a run of another scorer has no ranks: it stands in its own section alone
    aliases=("mean_reciprocal_rank",),
)
def reciprocal_rank(rows: ArmRows) -> FloatArray:
    return 1.0 / rows.columns["rank"]
