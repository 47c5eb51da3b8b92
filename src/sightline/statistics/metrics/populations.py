"""Which probes a metric averages over, and the answers that decide it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import BoolArray, FloatArray


def said_yes(rows: ArmRows) -> BoolArray:
    """(n,) True where the arm answered yes; on a positive, where it answered right."""
    if rows.predicted is None:
        raise SightlineError("the rows hold neither margins nor predictions")
    return rows.predicted


def answered_right(rows: ArmRows) -> FloatArray:
    """(n,) 1 where the answer is right."""
    return np.equal(said_yes(rows), rows.labels).astype(np.float64)


def margin(rows: ArmRows) -> FloatArray:
    """(n,) loss_no - loss_yes."""
    if rows.margins is None:
        raise SightlineError("the rows hold no margins")
    return rows.margins


def has_visible_evidence(rows: ArmRows) -> BoolArray:
    """(n,) True where the vision tower sees something of the probe's regions."""
    visible = rows.columns.get("visible")
    return np.zeros(len(rows.labels), dtype=bool) if visible is None else rows.has_regions & (visible > 0.0)


POPULATIONS: Mapping[str, Callable[[ArmRows], BoolArray]] = {
    "all probes": lambda rows: np.ones(len(rows.labels), dtype=bool),
    "positives": lambda rows: rows.labels,
    "negatives": lambda rows: ~rows.labels,
    "probes with regions": lambda rows: rows.has_regions,
    "positives with regions": lambda rows: rows.labels & rows.has_regions,
    "negatives with regions": lambda rows: ~rows.labels & rows.has_regions,
    "positives with visible evidence": lambda rows: rows.labels & has_visible_evidence(rows),
    "negatives with visible evidence": lambda rows: ~rows.labels & has_visible_evidence(rows),
    "correctly answered positives with regions": lambda rows: rows.labels & rows.has_regions & said_yes(rows),
    "correctly answered positives with visible evidence": lambda rows: (
        rows.labels & has_visible_evidence(rows) & said_yes(rows)
    ),
}
