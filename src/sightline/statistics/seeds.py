"""Arms that are drawn at random: what several seeds say together, and an arm against all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.bootstrap import DRAWS, SEED, count_blocks, replicate
from sightline.statistics.intervals import LEVEL, Estimate, percentile_interval
from sightline.statistics.metrics import Metric, point, why_not


@dataclass(frozen=True)
class SeedSummary:
    seeds: int
    mean: float
    sd: float
    """Population standard deviation over the seeds: they are described, not taken as a sample of more."""
    minimum: float
    maximum: float


def seed_summary(values: ArrayLike) -> SeedSummary:
    """One metric over the seeds of a random arm."""
    found = np.asarray(values, dtype=np.float64)
    return SeedSummary(len(found), float(found.mean()), float(found.std()), float(found.min()), float(found.max()))


def two_stage_difference(
    arm: ArmRows,
    seeded: Sequence[ArmRows],
    metric: Metric,
    *,
    draws: int = DRAWS,
    seed: int = SEED,
    level: float = LEVEL,
) -> Estimate:
    """metric(arm) minus the mean of metric over seeds, resampling seeds and, crossed with them, images.

    Per draw: theta_arm(images) - sum_s c_s theta_s(images) / S, with c the counts of S seeds drawn with replacement.
    The interval therefore covers another choice of masks as well as another choice of images.
    """
    if len(seeded) < 2:
        raise SightlineError(f"a seed-and-image interval needs at least two seeds, got {len(seeded)}")
    arms = [arm, *seeded]
    for rows in arms:
        reason = why_not(metric, rows)
        if reason:
            raise SightlineError(f"{metric.name} cannot be compared over seeds: {reason}")
    if any(not np.array_equal(rows.image_ids, arm.image_ids) for rows in seeded):
        raise SightlineError("a seed-and-image interval needs all seeds on the images of the arm")
    values = np.stack([replicate(rows, [metric], draws=draws, seed=seed)[:, 0] for rows in arms])
    chosen = np.concatenate(list(count_blocks(len(seeded), draws, seed, purpose="seeds")))
    differences = values[0] - np.einsum("ds,sd->d", chosen, values[1:]) / len(seeded)
    low, high = percentile_interval(differences, level)
    points = np.array([point(metric, rows) for rows in arms])
    return Estimate(float(points[0] - points[1:].mean()), low, high, int(np.isfinite(differences).sum()))
