"""Scores of two arms on the same questions: mean difference with its interval, wins and losses, a sign-flip test.

The question is what is resampled, since one question about an image says nothing certain about another; where several
ask about one image, ``units`` may name images instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows, FloatArray
from sightline.statistics.bootstrap import DRAWS, SEED, ImageSums, count_blocks, generator, replicate
from sightline.statistics.intervals import LEVEL, Estimate, ImageShares, interval, mean_shares
from sightline.statistics.metrics import Metric, why_not
from sightline.statistics.paired import TIE, WinLossTie, win_loss_tie

EXAMPLE_DRAWS = 20_000
SCORE_DIFFERENCES = (-1.0, 1.0)
"""Scores lie between 0 and 1."""
_FLIPS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class ScoreDifferences:
    """p comparisons over the same n questions, all from the same draws."""

    n: int
    points: FloatArray
    """(p,) mean differences."""
    draws: FloatArray | None
    """(draws, p) mean difference of every resample; None where fewer than two units are there to resample."""
    tallies: tuple[WinLossTie, ...]
    """(p,) questions on which the first arm scored higher, lower, the same."""
    shares: tuple[ImageShares, ...]
    """(p,) what each question, or image, has in a mean difference."""

    @classmethod
    def of(
        cls,
        differences: FloatArray,
        units: ArrayLike | None = None,
        *,
        draws: int = EXAMPLE_DRAWS,
        seed: int = SEED,
        purpose: str = "examples",
    ) -> ScoreDifferences:
        """(n, p) differences of scores -> their means. Without ``units`` every question is its own.

        ``purpose`` names the stream of draws: two sets of questions that are pooled need two of them, or one would be
        resampled as the other is.
        """
        values = np.asarray(differences, dtype=np.float64)
        if values.ndim != 2 or not len(values):
            raise SightlineError("a paired comparison needs at least one question that both arms answered")
        if not np.isfinite(values).all():
            raise SightlineError("a paired comparison needs a score of both arms for every question")
        index = np.arange(len(values)) if units is None else np.unique(np.asarray(units), return_inverse=True)[1]
        count = int(index.max()) + 1
        drawn = None
        if count > 1:
            sums = np.stack([np.bincount(index, column) for column in (*values.T, np.ones(len(values)))], axis=1)
            totals = np.concatenate([counts @ sums for counts in count_blocks(count, draws, seed, purpose)])
            drawn = totals[:, :-1] / totals[:, -1:]
        return cls(
            len(values),
            values.mean(axis=0),
            drawn,
            tuple(win_loss_tie(column) for column in values.T),
            tuple(mean_shares(column, index, SCORE_DIFFERENCES) for column in values.T),
        )

    def estimate(self, column: int, level: float = LEVEL) -> Estimate:
        """One mean difference with its interval."""
        value = float(self.points[column])
        if self.draws is None:
            return Estimate(value, math.nan, math.nan, 0, "an interval needs at least two examples")
        return interval(self.draws[:, column], self.shares[column], level)


def equally_weighted(parts: Sequence[ScoreDifferences]) -> ScoreDifferences:
    """Several benchmarks as one, each with the same weight however many questions it has.

    A draw resamples the questions of each benchmark apart; wins and losses are counted over all questions.
    """
    if not parts:
        raise SightlineError("there is no benchmark to pool")
    drawn = [part.draws for part in parts if part.draws is not None]
    tallies = zip(*(part.tallies for part in parts), strict=True)
    return ScoreDifferences(
        sum(part.n for part in parts),
        np.mean([part.points for part in parts], axis=0),
        np.mean(drawn, axis=0) if len(drawn) == len(parts) else None,
        tuple(WinLossTie(sum(t.win for t in of), sum(t.loss for t in of), sum(t.tie for t in of)) for of in tallies),
        tuple(ImageShares.mean(of, same_images=False) for of in zip(*(part.shares for part in parts), strict=True)),
    )


def sign_flip_p(differences: ArrayLike, *, draws: int = EXAMPLE_DRAWS, seed: int = SEED) -> float:
    """Two-sided p-value that differences (n,) are as likely up as down.

    (sums at least as far from 0 + 1) / (draws + 1), where every draw gives each difference a random sign. Ties have
    none to lose and are left out; without anything else it is 1.
    """
    change = np.asarray(differences, dtype=np.float64)
    change = change[np.abs(change) > TIE]
    if not len(change):
        return 1.0
    rng = generator(seed, "sign flips")
    observed = abs(float(change.sum()))
    step = max(1, _FLIPS_AT_ONCE // len(change))
    further = 0
    for start in range(0, draws, step):
        signs = rng.integers(0, 2, size=(min(step, draws - start), len(change))) * 2 - 1
        further += int(np.count_nonzero(np.abs(signs @ change) >= observed - TIE))
    return (further + 1) / (draws + 1)


# Arms that are drawn at random: what several seeds say together, and an arm against all of them.


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
