"""The budget that was really spent."""

from __future__ import annotations

from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray
from sightline.statistics.metrics.base import UNIT, metric


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
