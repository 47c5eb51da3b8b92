"""Exact and sign statistics of two arms that answered the same probes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, norm

from sightline.core.table import digits_apart
from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows, FloatArray, flags
from sightline.statistics.bootstrap import ImageSums
from sightline.statistics.intervals import LEVEL, ImageShares, percentile_interval, unseen_draws
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


def win_loss_tie(differences: ArrayLike, *, higher_is_better: bool = True, tolerance: float = TIE) -> WinLossTie:
    """How many units got better, worse, or stayed within ``tolerance``; units without a value (NaN) are left out."""
    change = np.asarray(differences, dtype=np.float64)
    change = change[np.isfinite(change)] * (1.0 if higher_is_better else -1.0)
    win, loss = int(np.count_nonzero(change > tolerance)), int(np.count_nonzero(change < -tolerance))
    return WinLossTie(win, loss, len(change) - win - loss)


# Intervals in words, so that nobody has to read a sign convention to read a report.


def _signed(value: float, digits: int) -> str:
    text = f"{value:+.{digits}f}"
    return text.lstrip("+-") if float(text) == 0.0 else text


def describe_difference(diff: float, low: float, high: float, reference: str = "Full", digits: int = 3) -> str:
    """What a paired difference and its 95% interval allow to be said about an arm and its reference.

    An interval that holds 0, a bound included, is "not distinguishable"; that is not "equal": the interval bounds what
    may have been lost. The stronger ``describe_noninferiority`` needs a margin named beforehand.
    """
    if not all(math.isfinite(value) for value in (diff, low, high)):
        return "not computed"
    digits = digits_apart(low, high, digits)
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
    low: float,
    high: float,
    margin: float,
    better: Literal["higher", "lower"] = "higher",
    reference: str = "Full",
    digits: int = 3,
) -> str:
    """The non-inferiority statement for a margin that the user named before looking at the result."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "not computed"
    worst = max(0.0, -low if better == "higher" else high)
    best = max(0.0, -high if better == "higher" else low)
    if is_noninferior(low, high, margin, better):
        return f"not inferior to {reference} by more than {margin:.{digits}f}: at worst {worst:.{digits}f}"
    if best >= margin:
        return f"inferior to {reference} by more than {margin:.{digits}f}: at best {best:.{digits}f}"
    return f"non-inferiority to {reference} within {margin:.{digits}f} not shown: may be worse by {worst:.{digits}f}"


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


def images_needed(shares: ArrayLike, difference: float, *, power: float = POWER, level: float = LEVEL) -> int:
    """Smallest number of images whose interval tells a true ``difference`` from 0 with probability ``power``.

    ((z_level + z_power) s / difference)^2, at least two.
    """
    observed = np.asarray(shares, dtype=np.float64)
    if observed.size < 2 or not np.isfinite(observed).all():
        raise SightlineError(f"power needs finite shares of at least two images, got {observed.size}")
    if difference == 0.0:
        raise SightlineError("no number of images detects a difference of 0; name the smallest difference that matters")
    reach = float(norm.ppf((1.0 + level) / 2.0) + norm.ppf(power))
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
