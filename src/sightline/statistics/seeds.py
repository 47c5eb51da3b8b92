"""Arms that are drawn at random: what several seeds say together, and an arm against all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray
from sightline.statistics.bootstrap import DRAWS, SEED, ImageSums, count_blocks, replicate
from sightline.statistics.intervals import LEVEL, Estimate, ImageShares, interval
from sightline.statistics.metrics import Metric, why_not


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
    The interval therefore covers another choice of masks as well as another choice of images. Its ends are
    linear-interpolated percentiles, like those of every other interval.
    """
    (found,) = two_stage_differences({"arm": arm}, seeded, [metric], draws=draws, seed=seed, level=level).values()
    if found.reason:
        raise SightlineError(found.reason)
    return found


def two_stage_differences(
    arms: Mapping[str, ArmRows],
    seeded: Sequence[ArmRows],
    metrics: Sequence[Metric],
    *,
    draws: int = DRAWS,
    seed: int = SEED,
    level: float = LEVEL,
) -> dict[tuple[str, str], Estimate]:
    """(arm, metric name) -> ``two_stage_difference``, each arm and seed resampled once for all of them.

    A metric that one side has no value of is NaN with the reason.
    """
    sums = [ImageSums.of(rows, metrics) for rows in seeded]
    found: dict[tuple[str, str], Estimate] = {}
    for name, drawn in two_stage_draws(arms, seeded, metrics, draws=draws, seed=seed).items():
        own = ImageSums.of(arms[name], metrics)
        for index, metric in enumerate(metrics):
            reason = next(filter(None, (why_not(metric, one) for one in (arms[name], *seeded))), "")
            if reason:
                words = f"{metric.name} cannot be compared over seeds: {reason}"
                found[name, metric.name] = Estimate(math.nan, math.nan, math.nan, 0, words)
                continue
            mean = ImageShares.mean([one.shares(metric) for one in sums])
            found[name, metric.name] = interval(drawn[:, index], own.shares(metric).minus(mean), level)
    return found


def two_stage_draws(
    arms: Mapping[str, ArmRows], seeded: Sequence[ArmRows], metrics: Sequence[Metric], *, draws: int, seed: int
) -> dict[str, FloatArray]:
    """By arm (draws, M) of what ``two_stage_difference`` resamples."""
    if len(seeded) < 2:
        raise SightlineError(f"a seed-and-image interval needs at least two seeds, got {len(seeded)}")
    ids = seeded[0].image_ids
    if any(not np.array_equal(rows.image_ids, ids) for rows in (*seeded, *arms.values())):
        raise SightlineError("a seed-and-image interval needs all seeds on the images of the arm")
    chosen = np.concatenate(list(count_blocks(len(seeded), draws, seed, purpose="seeds"))) / len(seeded)
    over_seeds = np.zeros((draws, len(metrics)))
    for weight, rows in zip(chosen.T, seeded, strict=True):
        over_seeds += weight[:, None] * replicate(rows, metrics, draws=draws, seed=seed)
    return {name: replicate(rows, metrics, draws=draws, seed=seed) - over_seeds for name, rows in arms.items()}
