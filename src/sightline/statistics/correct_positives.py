"""Right for which reason: how much of the evidence was left when a positive probe was answered correctly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows, are_positives
from sightline.statistics.bootstrap import DRAWS, SEED, ImageSums, replicate_all
from sightline.statistics.intervals import IntervalKind, wilson
from sightline.statistics.metrics import LOW_COVERAGE, METRICS, POPULATIONS, ZERO_COVERAGE, why_not


@dataclass(frozen=True)
class Share:
    """A count out of a total, its Wilson interval (probes independent) and its image-cluster interval.

    The latter is the one of every other table; ``kind`` says how it was made.
    """

    count: int
    rate: float
    wilson: tuple[float, float]
    cluster: tuple[float, float]
    kind: IntervalKind = "percentile"


@dataclass(frozen=True)
class CorrectPositives:
    positives: int
    """Positive probes with regions."""
    correct: int
    """Of these, answered yes."""
    accuracy: float
    mean_ecr: float
    """Mean lineage coverage over the correct ones; NaN when there are none."""
    mean_anchor_ecr: float
    weakly_supported: Share
    """Correct although coverage < 0.5."""
    unsupported: Share
    """Correct although no evidence cell is left (coverage <= 1e-12)."""


def correct_positive_provenance(rows: ArmRows, *, draws: int = DRAWS, seed: int = SEED) -> CorrectPositives:
    """Conditions on correctly answered positives; the cluster intervals need at least two images.

    The cluster interval resamples images and takes the share of the correct within each draw, so the number of correct
    positives varies as it would in a new sample; Wilson's holds that number fixed.
    """
    weakly, not_at_all = METRICS["weakly_supported"], METRICS["unsupported"]
    reason = why_not(METRICS["pos_ecr"], rows) or why_not(METRICS["accuracy"], rows)
    if reason:
        raise SightlineError(f"correct-positive provenance cannot be computed: {reason}")
    positive = POPULATIONS["positives with regions"](rows)
    correct = POPULATIONS[weakly.over](rows)
    total = int(correct.sum())
    values = None
    if total and rows.n_images > 1:
        sums = ImageSums.of(rows, [weakly, not_at_all])
        (values,) = replicate_all([sums], draws=draws, seed=seed)
    shares = []
    for index, metric in enumerate((weakly, not_at_all)):
        count = int(metric.value(rows)[correct].sum())
        bounds = wilson(count, total)
        if values is None:
            shares.append(Share(count, count / total if total else np.nan, bounds, (np.nan, np.nan)))
            continue
        found = sums.estimate(metric, values[:, index])
        shares.append(Share(count, found.value, bounds, (found.low, found.high), found.kind))

    def mean(name: str) -> float:
        return float(rows.columns[name][correct].mean()) if total and name in rows.columns else np.nan

    count = int(positive.sum())
    return CorrectPositives(count, total, total / count, mean("ecr"), mean("anchor_ecr"), *shares)


def unsupported_rows(frame: pd.DataFrame) -> pd.Series[bool]:
    """Per row whether it is a right answer to a positive with no evidence cell left."""
    return are_positives(frame) & frame["correct"].astype(bool) & has_no_evidence(frame["ecr"])


def has_no_evidence(coverage: pd.Series[Any]) -> pd.Series[bool]:
    return coverage.astype(float) <= ZERO_COVERAGE


def has_little_evidence(coverage: pd.Series[Any]) -> pd.Series[bool]:
    return coverage.astype(float) < LOW_COVERAGE
