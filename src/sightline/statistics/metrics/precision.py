"""How sharp coverage is: coarse cells cover a region and much beside it."""

from __future__ import annotations

from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray
from sightline.statistics.metrics.base import UNIT, metric


@metric(
    "lpp",
    "LPP",
    "local provenance precision: share of the kept cells touching a region that lies inside it",
    better="higher",
    over="positives with regions",
    needs=("lpp",),
    shown_in=("geometry",),
    place=500,
    limits=UNIT,
)
def lpp(rows: ArmRows) -> FloatArray:
    return rows.columns["lpp"]


@metric(
    "geo_f1",
    "Geo-F1",
    "mean harmonic mean of ECR and LPP",
    better="higher",
    over="positives with regions",
    needs=("geo_f1",),
    shown_in=("geometry",),
    place=510,
    limits=UNIT,
)
def geo_f1(rows: ArmRows) -> FloatArray:
    return rows.columns["geo_f1"]
