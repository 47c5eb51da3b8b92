"""How many images a comparison needs, judged from the images seen so far.

The normal approximation of a mean over images: an image's share is its jackknife pseudo-value, the standard deviation s
of shares is taken to stay what it is, and the standard error over m images is s / sqrt(m).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray
from sightline.statistics.bootstrap import ImageSums
from sightline.statistics.intervals import LEVEL, ImageShares, percentile_interval, unseen_draws
from sightline.statistics.metrics import Metric, why_not

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
