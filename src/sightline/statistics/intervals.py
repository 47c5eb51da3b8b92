"""The one rule by which every interval over images is made, and the words that two bounds decide.

Percentiles of bootstrap draws bound a statistic well where many images differ. Where hardly any do (no discordant
image, all margins in order, the same share in every image) resamples are all alike, and their percentiles say "0.000 to
0.000" of two images as of two thousand. There the bound allows for **an image that was not seen**: the images, weighted
at random, and one more at the end of the scale. For a plain share that is Clopper and Pearson's exact interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from scipy.stats import t as student

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import BoolArray, FloatArray

LEVEL = 0.95
EQUIVALENCE_LEVEL = 0.90
"""Two one-sided tests at 5 % are the question whether the 90% interval lies within the margin."""
FEW_DIFFER = 10
"""With fewer differing images than this percentiles bound nothing: an image that was not seen does."""
MANY_DIFFER = 40
"""From so many on they are taken as they are; in between they are widened as Student's t is."""
UNLIMITED = (-math.inf, math.inf)
IntervalKind = Literal["percentile", "unseen", "student", "certain", "none"]
"""certain: holds by construction, a number without an interval; none: no interval, with a reason."""
_WEIGHTS = 10_000
_WEIGHT_CELLS = 1 << 20
_ROUNDING = 1e-9  # relative; below it images do not differ


@dataclass(frozen=True)
class Estimate:
    """A number and its interval. NaN with a ``reason`` where it could not be computed."""

    value: float
    low: float
    high: float
    valid_draws: int = 0
    """Draws on which the statistic was defined; the percentiles are taken over these."""
    reason: str = ""
    kind: IntervalKind = "percentile"


@dataclass(frozen=True)
class ImageShares:
    """What each image has in a statistic: all that the rule needs beside the draws."""

    value: float
    changes: FloatArray
    """(m,) the statistic minus what it is without the image."""
    concerned: BoolArray
    """(m,) images that it is about; the others change nothing."""
    heaviest: float = math.nan
    """The largest part of the statistic that one image carries: 1 / m where all have equally many probes."""
    limits: tuple[float, float] = UNLIMITED
    """Between which the statistic lies whatever the images are."""
    most_differing: float = math.inf
    """No more images differ than this, whatever the changes say: of a correlation, those that make a column vary."""

    @property
    def images(self) -> int:
        return int(self.concerned.sum())

    def minus(self, other: ImageShares) -> ImageShares:
        """Of the difference of two statistics over the same images."""
        (low, high), (other_low, other_high) = self.limits, other.limits
        return ImageShares(
            self.value - other.value,
            self.changes - other.changes,
            self.concerned | other.concerned,
            max(self.heaviest, other.heaviest),
            (low - other_high, high - other_low),
            min(self.most_differing, other.most_differing),
        )

    @classmethod
    def mean(cls, parts: Sequence[ImageShares], *, same_images: bool = True) -> ImageShares:
        """Of the mean of several statistics, over the same images or each over its own."""
        joined = np.mean if same_images else _side_by_side
        together = [np.asarray(joined([getattr(p, name) for p in parts], axis=0)) for name in ("changes", "concerned")]
        ends = np.mean([part.limits for part in parts], axis=0)
        return cls(
            float(np.mean([part.value for part in parts])),
            together[0] if same_images else together[0] / len(parts),
            together[1] > 0,
            max(part.heaviest for part in parts) / (1 if same_images else len(parts)),
            (float(ends[0]), float(ends[1])),
            min(part.most_differing for part in parts),
        )

    @property
    def deviations(self) -> FloatArray:
        """(c,) of the images concerned: (c - 1) changes, around their mean; rounding taken off.

        With equally many probes per image an image's deviation is its own value minus the mean.
        """
        own = self.changes[self.concerned]
        # Without a lone image (of one class) nothing is left to differ from.
        found = np.where(np.isfinite(own), own, 0.0) * (len(own) - 1)
        found = found - (found.mean() if len(found) else 0.0)
        span = self.limits[1] - self.limits[0]
        scale = span if math.isfinite(span) else abs(self.value) + float(np.abs(found).max(initial=0.0))
        return np.asarray(np.where(np.abs(found) > _ROUNDING * scale, found, 0.0))

    @property
    def differing(self) -> float:
        """How many images differ from the rest: (sum |d|)^2 / sum d^2, with d the deviations from their median.

        k where k images have one value and all others another; fewer than all where some differ more than others.
        """
        away = self.deviations
        away = np.abs(away - np.median(away)) if len(away) else away
        squares = float(np.square(away).sum())
        return min(float(away.sum()) ** 2 / squares, self.most_differing) if squares > 0.0 else 0.0


def _side_by_side(parts: list[FloatArray], axis: int) -> FloatArray:
    return np.concatenate(parts, axis=axis)


def mean_shares(values: FloatArray, units: ArrayLike, limits: tuple[float, float] = UNLIMITED) -> ImageShares:
    """Of the mean of (n,) values, where (n,) ``units`` number the image of each."""
    index = np.asarray(units)
    sums = np.bincount(index, values).astype(np.float64)
    return ratio_shares(sums, np.bincount(index).astype(np.float64), limits)


def ratio_shares(sums: FloatArray, counts: FloatArray, limits: tuple[float, float] = UNLIMITED) -> ImageShares:
    """Of sum(sums) / sum(counts), both (m,) per image."""
    with np.errstate(invalid="ignore", divide="ignore"):
        value = sums.sum() / counts.sum()
        without = (sums.sum() - sums) / (counts.sum() - counts)
    return ImageShares(float(value), value - without, counts > 0, float(counts.max() / counts.sum()), limits)


def percentile_interval(draws: FloatArray, level: float = LEVEL) -> tuple[float, float]:
    """Linear-interpolated percentiles (1 - level) / 2 and (1 + level) / 2 of the finite draws; NaN when none is.

    Intervals come from ``interval``, which takes these where they bound anything.
    """
    finite = draws[np.isfinite(draws)]
    if finite.size == 0:
        return math.nan, math.nan
    low, high = np.quantile(finite, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return float(low), float(high)


def interval(draws: FloatArray, shares: ImageShares, level: float = LEVEL) -> Estimate:
    """The interval of a statistic over images: the rule that every table, chart and verdict shares."""
    lower, upper, kind = _ends(draws, shares)
    if kind == "percentile":
        level = _widened(level, shares.differing)
    low, high = percentile_interval(lower, level)[0], percentile_interval(upper, level)[1]
    valid = int(np.isfinite(draws).sum())
    few = f"about {shares.differing:.0f} of {shares.images} images differ, which bounds nothing that has no limits"
    return Estimate(shares.value, low, high, valid, few if kind == "none" else "", kind)


def _widened(level: float, differing: float) -> float:
    """The level at which percentiles of k differing images cover as Student's t does: P(|z| < sqrt(k / (k - 1)) t)."""
    if differing >= MANY_DIFFER:
        return level
    reach = math.sqrt(differing / (differing - 1.0)) * student.ppf((1.0 + level) / 2.0, differing - 1.0)
    return float(1.0 - 2.0 * norm.sf(reach))


def p_above(draws: FloatArray, shares: ImageShares, bound: float = 0.0) -> float:
    """One-sided p-value against "the statistic is at most ``bound``", by the same rule as the interval.

    (draws of the lower end that reach down to the bound + 1) / (draws + 1): it is at most 0.025 where the lower end of
    the 95% interval is above the bound. 1 where there is no interval.
    """
    lower, _, kind = _ends(draws, shares)
    finite = lower[np.isfinite(lower)]
    p = (1.0 + float(np.count_nonzero(finite <= bound))) / (1.0 + len(finite))
    differing = shares.differing
    if kind != "percentile" or differing >= MANY_DIFFER:
        return p
    return float(student.cdf(norm.ppf(p) * math.sqrt((differing - 1.0) / differing), differing - 1.0))


def p_below(draws: FloatArray, shares: ImageShares, bound: float = 0.0) -> float:
    """``p_above`` of the other side: small where the upper end is below the bound."""
    low, high = shares.limits
    mirrored = replace(shares, value=-shares.value, changes=-shares.changes, limits=(-high, -low))
    return p_above(-draws, mirrored, -bound)


def _ends(draws: FloatArray, shares: ImageShares) -> tuple[FloatArray, FloatArray, IntervalKind]:
    """Draws whose low percentile is the lower end, those whose high percentile is the upper one, and their kind."""
    differing = shares.differing
    if differing >= FEW_DIFFER:
        return draws, draws, "percentile"
    if all(math.isfinite(end) for end in (*shares.limits, shares.heaviest)):
        return *unseen_draws(shares), "unseen"
    if differing < 2.0:
        return np.full(1, math.nan), np.full(1, math.nan), "none"
    # Student's t with half as many degrees of freedom as images differ: values without limits are often skewed.
    count = shares.images
    error = math.sqrt(float(np.square(shares.deviations).sum()) / (count * (count - 1)))
    drawn = np.clip(shares.value + error * student.ppf(_midpoints(_WEIGHTS), differing / 2.0), *shares.limits)
    return drawn, drawn, "student"


def _midpoints(count: int) -> FloatArray:
    return (np.arange(count) + 0.5) / count


def unseen_draws(shares: ImageShares, times: float = 1.0) -> tuple[FloatArray, FloatArray]:
    """(d,) draws for the lower and the upper end: (1 - v) sum_i w_i x_i + v end.

    x are the values of c images, w ~ Dirichlet(1, ..., 1) their weights, v ~ Beta(1, c) that of the unseen one, and the
    end is what an image that carries as much as the heaviest has at the limit of the scale. ``times`` repeats the
    images, to ask what more of them would bring.
    """
    values, counts = np.unique(shares.value + shares.deviations, return_counts=True)
    images = times * shares.images
    seen = _weighted(values, tuple((times * counts).tolist()))
    unseen = unseen_weights(len(seen), images)
    reach = shares.heaviest * shares.images
    low, high = shares.limits
    lower, upper = (
        np.clip((1.0 - unseen) * seen + unseen * (shares.value + reach * (end - shares.value)), low, high)
        for end in shares.limits
    )
    return lower, upper


def unseen_weights(count: int, images: float) -> FloatArray:
    """(count,) evenly spaced quantiles of Beta(1, images): how much of the whole an image that was not seen may be."""
    return np.asarray(1.0 - (1.0 - _midpoints(count)) ** (1.0 / images))


def _weighted(values: FloatArray, counts: tuple[float, ...]) -> FloatArray:
    """(d,) seeded Dirichlet means of values (u,) that stand for so many images each."""
    if len(values) <= MANY_DIFFER:
        return dirichlet(counts) @ values
    step = max(1, _WEIGHT_CELLS // len(values))
    draws = min(_WEIGHTS, max(1_000, 100 * step))
    rng, parts = np.random.default_rng(17), []
    for start in range(0, draws, step):
        weights = rng.standard_gamma(counts, size=(min(step, draws - start), len(values)))
        parts.append(weights @ values / weights.sum(axis=1))
    return np.concatenate(parts)


@lru_cache(maxsize=16)
def dirichlet(counts: tuple[float, ...]) -> FloatArray:
    """(d, u) weights that sum to 1; kept, since metrics of one run ask for the same ones."""
    weights: FloatArray = np.random.default_rng(17).standard_gamma(counts, size=(_WEIGHTS, len(counts)))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def wilson(successes: float, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's score interval of a proportion.

    (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n), with p = successes / n. Successes need not be
    whole: 3 of 4 probes on two images are 1.5 of 2.
    """
    if n == 0:
        return math.nan, math.nan
    if not 0 <= successes <= n:
        raise SightlineError(f"a proportion of {successes} successes in {n} trials is impossible")
    z = float(norm.ppf((1.0 + level) / 2.0))
    share = successes / n
    scale = 1.0 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z * math.sqrt(share * (1.0 - share) / n + z * z / (4 * n * n)) / scale
    # With 0 (or n) successes the bound is exactly 0 (or 1); rounding must not leave 1e-18 there.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high
