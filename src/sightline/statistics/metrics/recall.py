"""Coverage counted instead of measured: centres of regions, cells that touch them."""

from __future__ import annotations

from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray
from sightline.statistics.metrics.base import UNIT, metric


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
