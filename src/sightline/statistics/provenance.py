"""Right for which reason: how much of the evidence was left when a positive probe was answered correctly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sightline.errors import SightlineError
from sightline.statistics.bootstrap import DRAWS, SEED, replicate
from sightline.statistics.intervals import LEVEL, percentile_interval, wilson
from sightline.statistics.metrics import METRICS, POPULATIONS, why_not
from sightline.statistics.rows import ArmRows


@dataclass(frozen=True)
class Share:
    """A count out of a total, its Wilson interval (probes independent) and its image-cluster interval."""

    count: int
    rate: float
    wilson: tuple[float, float]
    cluster: tuple[float, float]


@dataclass(frozen=True)
class Provenance:
    positives: int
    """Positive probes with regions."""
    correct: int
    """Of these, answered yes."""
    accuracy: float
    mean_ecr: float
    """Mean lineage coverage over the correct ones; NaN when there are none."""
    mean_anchor_ecr: float
    low: Share
    """Correct although coverage < 0.5."""
    zero: Share
    """Correct although no evidence cell is left (coverage <= 1e-12)."""


def correct_positive_provenance(
    rows: ArmRows, *, draws: int = DRAWS, seed: int = SEED, level: float = LEVEL
) -> Provenance:
    """Conditions on correctly answered positives; the cluster intervals need at least two images.

    The cluster interval resamples images and takes low / correct within each draw, so the number of correct positives
    varies as it would in a new sample; Wilson's holds that number fixed.
    """
    low, zero = METRICS["low_coverage"], METRICS["zero_coverage"]
    reason = why_not(METRICS["pos_ecr"], rows) or why_not(METRICS["accuracy"], rows)
    if reason:
        raise SightlineError(f"correct-positive provenance cannot be computed: {reason}")
    positive = POPULATIONS["positives with regions"](rows)
    correct = POPULATIONS[low.over](rows)
    total = int(correct.sum())
    values = None
    if total and rows.n_images > 1:
        values = replicate(rows, [low, zero], draws=draws, seed=seed)
    shares = []
    for index, metric in enumerate((low, zero)):
        count = int(metric.value(rows)[correct].sum())
        cluster = (np.nan, np.nan) if values is None else percentile_interval(values[:, index], level)
        shares.append(Share(count, count / total if total else np.nan, wilson(count, total, level), cluster))

    def mean(name: str) -> float:
        return float(rows.columns[name][correct].mean()) if total and name in rows.columns else np.nan

    count = int(positive.sum())
    return Provenance(count, total, total / count, mean("ecr"), mean("anchor_ecr"), *shares)
