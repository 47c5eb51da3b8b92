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
from sightline.statistics.intervals import LEVEL
from sightline.statistics.metrics import POPULATIONS, Metric, why_not

POWER = 0.8


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


def images_for_wilson(rows: ArmRows, metric: Metric, share: float, bound: float, *, level: float = LEVEL) -> int:
    """How many images like these would move Wilson's interval of a share, which stays what it is, off ``bound``.

    An end b of that interval solves (share - b)^2 = z^2 b (1 - b) / n. Here n counts images that the metric concerns,
    and the others come along in the same proportion.
    """
    if share == bound:
        raise SightlineError("no number of images tells a share from itself; name the smallest difference that matters")
    z = float(norm.ppf((1.0 + level) / 2.0))
    trials = z * z * bound * (1.0 - bound) / (share - bound) ** 2
    concerned = len(np.unique(rows.image_index[POPULATIONS[metric.over](rows)]))
    return max(2, math.ceil(trials * rows.n_images / concerned))
