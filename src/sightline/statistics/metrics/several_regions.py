"""Probes with several regions: the least covered one decides."""

from __future__ import annotations

from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray
from sightline.statistics.metrics.base import UNIT, metric


@metric(
    "worst_region",
    "Worst region",
    "ECR of the least covered region of a probe",
    better="higher",
    over="positives with regions",
    needs=("worst_region",),
    shown_in=("geometry",),
    place=700,
    limits=UNIT,
    of_all_tokens=1.0,
)
def worst_region(rows: ArmRows) -> FloatArray:
    return rows.columns["worst_region"]


@metric(
    "all_half",
    "All >= 0.5",
    "share of probes in which every region has ECR >= 0.5",
    better="higher",
    over="positives with regions",
    needs=("all_half",),
    binary=True,
    shown_in=("geometry",),
    place=710,
    of_all_tokens=1.0,
)
def all_half(rows: ArmRows) -> FloatArray:
    return rows.columns["all_half"]
