"""Exact and sign statistics of two arms that answered the same probes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, norm

from sightline.core.table import digits_apart
from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows, FloatArray, flags
from sightline.statistics.bootstrap import DRAWS, SEED, ImageSums, count_blocks, generator, mean_draws, replicate
from sightline.statistics.intervals import (
    LEVEL,
    Estimate,
    ImageShares,
    interval,
    mean_shares,
    percentile_interval,
    unseen_draws,
)
from sightline.statistics.metrics import Metric, why_not

TIE = 1e-12


@dataclass(frozen=True)
class McNemar:
    """Discordant probes of two arms and the exact two-sided p-value that they are a fair coin."""

    first_only: int
    """b: the first arm is 1 and the second 0."""
    second_only: int
    """c: the second arm is 1 and the first 0."""
    p: float


def mcnemar_p(b: int, c: int) -> float:
    """min(1, 2 sum_{k <= min(b, c)} C(b + c, k) / 2^(b + c)); 1 when no probe is discordant."""
    if b < 0 or c < 0:
        raise SightlineError(f"discordant counts cannot be negative, got {b} and {c}")
    return 1.0 if b + c == 0 else min(1.0, 2.0 * float(binom.cdf(min(b, c), b + c, 0.5)))


def mcnemar(first: ArrayLike, second: ArrayLike) -> McNemar:
    """Exact McNemar test of two aligned 0/1 arrays (n,).

    It treats probes as independent, which two probes of one image are not: read it beside the image-cluster interval.
    """
    one, two = flags(first, "the first arm"), flags(second, "the second arm")
    if one.shape != two.shape:
        raise SightlineError(f"paired arrays differ in length: {one.shape} and {two.shape}")
    b, c = int(np.count_nonzero(one & ~two)), int(np.count_nonzero(~one & two))
    return McNemar(b, c, mcnemar_p(b, c))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of a family, each corrected for all of them (Holm), in the order given.

    max_{j <= i} min(1, (n + 1 - j) p_(j)) with p_(1) <= ... <= p_(n): claims whose corrected value is at most 0.05 are
    all true at once in 95 of 100 families, however they depend on one another.
    """
    given = np.asarray(p_values, dtype=np.float64)
    if given.ndim != 1 or not ((given >= 0.0) & (given <= 1.0)).all():
        raise SightlineError("a family of p-values needs numbers between 0 and 1")
    order = np.argsort(given, kind="stable")
    steps = np.minimum(1.0, given[order] * np.arange(len(given), 0, -1))
    corrected = np.empty(len(given))
    corrected[order] = np.maximum.accumulate(steps)
    return [float(p) for p in corrected]


@dataclass(frozen=True)
class WinLossTie:
    win: int
    loss: int
    tie: int


def win_loss_tie(differences: ArrayLike, *, higher_is_better: bool = True) -> WinLossTie:
    """How many units got better, worse, or stayed within ``TIE``; units without a value (NaN) are left out."""
    change = np.asarray(differences, dtype=np.float64)
    change = change[np.isfinite(change)] * (1.0 if higher_is_better else -1.0)
    win, loss = int(np.count_nonzero(change > TIE)), int(np.count_nonzero(change < -TIE))
    return WinLossTie(win, loss, len(change) - win - loss)


# Intervals in words, so that nobody has to read a sign convention to read a report.


def _signed(value: float, digits: int) -> str:
    text = f"{value:+.{digits}f}"
    return text.lstrip("+-") if float(text) == 0.0 else text


def describe_difference(diff: float, low: float, high: float, reference: str = "Full") -> str:
    """What a paired difference and its 95% interval allow to be said about an arm and its reference.

    An interval that holds 0, a bound included, is "not distinguishable"; that is not "equal": the interval bounds what
    may have been lost. The stronger ``describe_noninferiority`` needs a margin named beforehand.
    """
    if not all(math.isfinite(value) for value in (diff, low, high)):
        return "not computed"
    digits = digits_apart(low, high)
    if low <= 0.0 <= high:
        return f"not distinguishable from {reference}: {_signed(low, digits)} to {_signed(high, digits)}"
    near, far = sorted((abs(low), abs(high)))
    direction = "lower" if high < 0.0 else "higher"
    return f"{direction} than {reference} by {abs(diff):.{digits}f} ({near:.{digits}f} to {far:.{digits}f})"


def equivalence(low90: float, high90: float, margin: float) -> Literal["equal", "different", "open"]:
    """What a 90% interval of a difference decides about equality within ``margin``: two one-sided tests at 5 %.

    ``equal``: the whole interval lies between -margin and margin. ``different``: it lies wholly beyond one of them.
    ``open`` otherwise, and without an interval: few images never show that two things are equal.
    """
    if not margin > 0.0:
        raise SightlineError(f"a margin of equality must be positive, got {margin}")
    if not (math.isfinite(low90) and math.isfinite(high90)):
        return "open"
    if -margin < low90 and high90 < margin:
        return "equal"
    return "different" if low90 > margin or high90 < -margin else "open"


def is_noninferior(low: float, high: float, margin: float, better: Literal["higher", "lower"]) -> bool:
    """True iff the whole interval of (arm - reference) is better than a loss of ``margin``."""
    if not margin > 0.0:
        raise SightlineError(f"a non-inferiority margin must be positive, got {margin}")
    return low > -margin if better == "higher" else high < margin


def describe_noninferiority(
    low: float, high: float, margin: float, better: Literal["higher", "lower"] = "higher", reference: str = "Full"
) -> str:
    """The non-inferiority statement for a margin that the user named before looking at the result."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "not computed"
    worst = max(0.0, -low if better == "higher" else high)
    best = max(0.0, -high if better == "higher" else low)
    if is_noninferior(low, high, margin, better):
        return f"not inferior to {reference} by more than {margin:.3f}: at worst {worst:.3f}"
    if best >= margin:
        return f"inferior to {reference} by more than {margin:.3f}: at best {best:.3f}"
    return f"non-inferiority to {reference} within {margin:.3f} not shown: may be worse by {worst:.3f}"


# How many images a comparison needs, judged from the images seen so far.
#
# The normal approximation of a mean over images: an image's share is its jackknife pseudo-value, the standard
# deviation s of shares is taken to stay what it is, and the standard error over m images is s / sqrt(m).

POWER = 0.8
_MOST_TIMES = 1e6


def image_shares(rows: ArmRows, metric: Metric) -> FloatArray:
    """(m,) each image's share in the metric."""
    reason = why_not(metric, rows)
    if reason:
        raise SightlineError(f"power for {metric.name} cannot be computed: {reason}")
    shares: FloatArray = ImageSums.of(rows, [metric]).pseudo_values()[:, 0]
    return shares


def image_differences(arm: ArmRows, reference: ArmRows, metric: Metric) -> FloatArray:
    """(m,) each image's share in metric(arm) - metric(reference)."""
    shares = [image_shares(rows, metric) for rows in (arm, reference)]
    if not np.array_equal(arm.image_ids, reference.image_ids):
        raise SightlineError("power needs both arms on the same images")
    return shares[0] - shares[1]


def images_needed(shares: ArrayLike, difference: float, *, level: float = LEVEL) -> int:
    """Smallest number of images whose interval tells a true ``difference`` from 0 with probability ``POWER``.

    ((z_level + z_power) s / difference)^2, at least two.
    """
    observed = np.asarray(shares, dtype=np.float64)
    if observed.size < 2 or not np.isfinite(observed).all():
        raise SightlineError(f"power needs finite shares of at least two images, got {observed.size}")
    if difference == 0.0:
        raise SightlineError("no number of images detects a difference of 0; name the smallest difference that matters")
    reach = float(norm.ppf((1.0 + level) / 2.0) + norm.ppf(POWER))
    return max(2, math.ceil((reach * float(observed.std(ddof=1)) / difference) ** 2))


def images_to_bound(shares: ImageShares, bound: float, *, level: float = LEVEL) -> int:
    """How many images like these would move an interval that allows for an unseen image off ``bound``.

    The images are repeated until the end between the statistic, which stays what it is, and the bound lies on this side
    of it.
    """
    if shares.value == bound:
        raise SightlineError("no number of images tells a value from itself; name the smallest difference that matters")

    def decided(times: float) -> bool:
        lower, upper = unseen_draws(shares, times)
        if shares.value > bound:
            return percentile_interval(lower, level)[0] >= bound
        return percentile_interval(upper, level)[1] <= bound

    most = 1.0
    while not decided(most):
        most *= 2.0
        if most > _MOST_TIMES:
            raise SightlineError("no number of images that anybody has would decide")
    least = most / 2.0
    for _ in range(12):
        middle = math.sqrt(least * most)
        least, most = (least, middle) if decided(middle) else (middle, most)
    return max(2, math.ceil(most * len(shares.changes)))


# Scores of two arms on the same questions: mean difference with its interval, wins and losses, a sign-flip test.
#
# The question is what is resampled, since one question about an image says nothing certain about another; where
# several ask about one image, ``units`` may name images instead.

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
        return cls(
            len(values),
            values.mean(axis=0),
            mean_draws(values, index, draws, seed, purpose) if index.any() else None,  # one alone is number 0
            tuple(win_loss_tie(column) for column in values.T),
            tuple(mean_shares(column, index, SCORE_DIFFERENCES) for column in values.T),
        )

    def estimate(self, column: int) -> Estimate:
        """One mean difference with its interval."""
        value = float(self.points[column])
        if self.draws is None:
            return Estimate(value, math.nan, math.nan, 0, "an interval needs at least two examples")
        return interval(self.draws[:, column], self.shares[column])


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


def two_stage_difference(arm: ArmRows, seeded: Sequence[ArmRows], metric: Metric, *, draws: int = DRAWS) -> Estimate:
    """metric(arm) minus the mean of metric over seeds, resampling seeds and, crossed with them, images.

    Per draw: theta_arm(images) - sum_s c_s theta_s(images) / S, with c the counts of S seeds drawn with replacement.
    The interval therefore covers another choice of masks as well as another choice of images. Its ends are
    linear-interpolated percentiles, like those of every other interval.
    """
    (found,) = two_stage_differences({"arm": arm}, seeded, [metric], draws=draws).values()
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
            found[name, metric.name] = interval(drawn[:, index], own.shares(metric).minus(mean))
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
