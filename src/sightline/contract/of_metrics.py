"""The promises of a metric, on drawn rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from sightline.contract.promise import as_promises, promise
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray
from sightline.statistics.metrics import Metric
from sightline.statistics.metrics.base import AnswerKind, Direction
from sightline.statistics.metrics.populations import POPULATIONS
from sightline.statistics.metrics.sums import point, why_not

PROBES = 48
"""Drawn rows; two probes to an image."""


def check_metric(metric: Metric, **columns: Sequence[float]) -> None:
    """Raises an ``AssertionError`` unless the metric keeps what tables, intervals and the gate rely on.

    It reads nothing but what ``needs`` names; it has one finite value for each probe of its population, 0 or 1 where it
    calls itself binary or a share; a probe's value depends on no other probe, which is what lets images be resampled.

    Columns are drawn between 0 and 1, both included, as coverage is; give values of those that are something else,
    repeated as often as needed: ``check_metric(mean_rank, rank=[1, 2, 3])``.
    """
    promise(bool(metric.label and metric.definition), f"{metric.name} needs a label and a definition: tables show them")
    promise(metric.better in get_args(Direction), f"{metric.name}: better is {metric.better!r}")
    promise(metric.answers in get_args(AnswerKind), f"{metric.name}: answers is {metric.answers!r}")
    promise(metric.over in POPULATIONS, f"{metric.name}: there is no population '{metric.over}'")
    rows = _drawn(metric, columns)
    with as_promises():
        reason = why_not(metric, rows)
        promise(not reason, f"{metric.name} has no value on drawn rows: {reason}")
        values = _values(metric, rows)
        concerned = POPULATIONS[metric.over](rows)
        own = values[concerned]
        hint = f"; if a column of it is no share, give values: check_metric({metric.name}, COLUMN=[1, 2, 3])"
        promise(bool(np.isfinite(own).all()), f"{metric.name} is not finite on every probe of its population{hint}")
        if metric.binary or metric.share:
            promise(bool(np.isin(own, (0.0, 1.0)).all()), f"{metric.name} is a share with values other than 0 and 1")
        half = np.arange(PROBES) % 4 < 2
        apart = _values(metric, _some(rows, half))
        same = np.array_equal(apart[concerned[half]], values[half & concerned])
        promise(same, f"{metric.name}: a probe's value changes with the probes beside it")
        promise(np.isfinite(point(metric, rows)), f"{metric.name} is not finite")


def _drawn(metric: Metric, columns: dict[str, Sequence[float]]) -> ArmRows:
    """Rows that have exactly what the metric says it needs."""
    source = np.random.default_rng(17)
    values: dict[str, Any] = {}
    for name in metric.columns:
        drawn = source.uniform(0.0, 1.0, PROBES)
        shares = np.where(drawn < 0.2, 0.0, np.where(drawn > 0.8, 1.0, drawn))
        values[name] = np.rint(drawn) if metric.binary else shares
    values |= {name: np.resize(np.asarray(given, dtype=np.float64), PROBES) for name, given in columns.items()}
    return ArmRows.of(
        np.arange(PROBES) % 2 == 0,
        source.normal(0.0, 1.0, PROBES),
        np.arange(PROBES) // 2,
        has_regions=np.arange(PROBES) % 6 != 5,
        **values,
    )


def _values(metric: Metric, rows: ArmRows) -> FloatArray:
    """(n,) one value per probe."""
    try:
        values = np.asarray(metric.value(rows), dtype=np.float64)
    except KeyError as missing:
        raise AssertionError(f"{metric.name} reads the column {missing}, which its needs do not name") from missing
    count = len(rows.labels)
    promise(values.shape == (count,), f"{metric.name} gives {values.shape} values for {count} probes")
    return values


def _some(rows: ArmRows, chosen: np.ndarray) -> ArmRows:
    assert rows.margins is not None
    columns: dict[str, Any] = {name: values[chosen] for name, values in rows.columns.items()}
    images = rows.image_ids[rows.image_index[chosen]]
    return ArmRows.of(
        rows.labels[chosen], rows.margins[chosen], images, has_regions=rows.has_regions[chosen], **columns
    )
