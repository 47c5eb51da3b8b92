"""From probes to a metric. Every one is a function of sums over probes.

That is what makes a bootstrap draw a matrix product: the sums of a resample are (counts of images) @ (sums per image),
and ``finish`` turns sums into the metric. AUROC alone needs ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from sightline.statistics.arm_rows import ArmRows, FloatArray
from sightline.statistics.metrics.answers import ECE_BINS, auroc, ece_bin
from sightline.statistics.metrics.base import METRICS, POPULATIONS, Metric, margin


def why_not(metric: Metric, rows: ArmRows) -> str:
    """One clause that says why the metric has no value on these rows, or "" when it has."""
    return _unknown(metric, rows) or _undefined(metric, rows)


def _unknown(metric: Metric, rows: ArmRows) -> str:
    """What the metric needs and the rows do not hold."""
    missing = [name for name in metric.columns if name not in rows.columns]
    if missing:
        return f"the rows have no column '{missing[0]}'"
    asked = [need for need in metric.needs if need not in metric.columns]
    if "margin" in asked and rows.margins is None:
        return "the rows have no margin"
    if asked and rows.predicted is None:
        return "the rows have no prediction"
    if "yes" in asked and not rows.yes_or_no:
        return "the answers are not yes or no"
    # An answer read off a margin that is not a number is no answer, even if a column claims one.
    broken = 0 if rows.margins is None else int(np.count_nonzero(~np.isfinite(rows.margins)))
    return f"{broken} of {len(rows.labels)} margins are not finite" if asked and broken else ""


def _undefined(metric: Metric, rows: ArmRows) -> str:
    """What is wrong with the probes concerned."""
    chosen = POPULATIONS[metric.over](rows)
    if not chosen.any():
        return f"there are no {metric.over}"
    if metric.form in ("auroc", "macro") and (rows.labels[chosen].all() or not rows.labels[chosen].any()):
        only = "yes" if rows.labels[chosen][0] else "no"
        return f"it needs both labels and all {int(chosen.sum())} of its probes have '{only}'"
    for name in metric.columns:
        values = rows.columns[name][chosen]
        broken = int(np.count_nonzero(~np.isfinite(values)))
        if broken:
            return f"{broken} of {int(chosen.sum())} values of '{name}' are not finite"
        if metric.binary and not np.isin(values, (0.0, 1.0)).all():
            return f"'{name}' has values other than 0 and 1"
    return ""


def probe_sums(metric: Metric, rows: ArmRows) -> Iterator[FloatArray]:
    """(n,) each: what every probe adds to the c sums that ``finish`` turns into the metric (not for AUROC).

    One after the other, because all of them may be many times the rows.
    """
    chosen = POPULATIONS[metric.over](rows)
    value = np.where(chosen, metric.value(rows), 0.0)
    if metric.form == "mean":
        yield value
        yield chosen.astype(np.float64)
    elif metric.form == "macro":
        for label in (chosen & rows.labels, chosen & ~rows.labels):
            yield value * label
            yield label.astype(np.float64)
    else:
        place = ece_bin(expit(np.abs(margin(rows))))
        for number in range(ECE_BINS):
            yield np.where(place == number, value, 0.0)
        yield chosen.astype(np.float64)


def finish(metric: Metric, sums: FloatArray) -> FloatArray:
    """(..., c) sums -> (...) metric; NaN where no probe concerned is left."""
    with np.errstate(invalid="ignore", divide="ignore"):
        if metric.form == "mean":
            value: FloatArray = sums[..., 0] / sums[..., 1]
        elif metric.form == "macro":
            value = 0.5 * (sums[..., 0] / sums[..., 1] + sums[..., 2] / sums[..., 3])
        else:
            value = np.abs(sums[..., :-1]).sum(axis=-1) / sums[..., -1]
    return value


def point(metric: Metric, rows: ArmRows) -> float:
    """The metric over all rows; NaN where ``why_not`` gives a reason."""
    if why_not(metric, rows):
        return math.nan
    if metric.form == "auroc":
        return auroc(rows.labels, margin(rows))
    return float(finish(metric, np.array([column.sum() for column in probe_sums(metric, rows)])))


def answer_metrics(labels: ArrayLike, margins: ArrayLike, threshold: float = 0.0) -> dict[str, float]:
    """Every metric that needs no further column, from labels (yes = True) and margins."""
    rows = ArmRows.of(labels, margins, threshold=threshold)
    return {name: point(known, rows) for name, known in METRICS.items() if not known.columns}
