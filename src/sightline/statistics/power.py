"""How many images a comparison needs, judged from the differences seen so far.

All of it is the normal approximation of a paired mean: d_i is image i's share in the difference
(``image_differences``), its standard deviation s is taken to stay what it is, and the standard error over m images is
s / sqrt(m).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from sightline.errors import SightlineError
from sightline.statistics.arrays import FloatArray
from sightline.statistics.bootstrap import ImageSums
from sightline.statistics.intervals import LEVEL
from sightline.statistics.metrics import Metric, why_not
from sightline.statistics.rows import ArmRows


def image_differences(arm: ArmRows, reference: ArmRows, metric: Metric) -> FloatArray:
    """(m,) each image's share in metric(arm) - metric(reference): the difference of jackknife pseudo-values."""
    for rows in (arm, reference):
        reason = why_not(metric, rows)
        if reason:
            raise SightlineError(f"power for {metric.name} cannot be computed: {reason}")
    if not np.array_equal(arm.image_ids, reference.image_ids):
        raise SightlineError("power needs both arms on the same images")
    shares: FloatArray = ImageSums.of(arm, [metric]).pseudo_values() - ImageSums.of(reference, [metric]).pseudo_values()
    return shares[:, 0]


def _spread(differences: ArrayLike) -> float:
    observed = np.asarray(differences, dtype=np.float64)
    if observed.size < 2 or not np.isfinite(observed).all():
        raise SightlineError(f"power needs finite differences of at least two images, got {observed.size}")
    return float(observed.std(ddof=1))


def detectable_difference(differences: ArrayLike, images: int, *, power: float = 0.8, level: float = LEVEL) -> float:
    """(z_level + z_power) s / sqrt(m): the true difference that m images show with probability ``power``."""
    if images < 2:
        raise SightlineError(f"a comparison needs at least two images, got {images}")
    reach = float(norm.ppf((1.0 + level) / 2.0) + norm.ppf(power))
    return reach * _spread(differences) / math.sqrt(images)


def power_for(differences: ArrayLike, images: int, difference: float, *, level: float = LEVEL) -> float:
    """Probability that the interval over ``images`` images excludes 0 when the true difference is ``difference``."""
    if images < 2:
        raise SightlineError(f"a comparison needs at least two images, got {images}")
    spread = _spread(differences)
    if spread == 0.0:
        return 1.0 if difference else 0.0
    bound = float(norm.ppf((1.0 + level) / 2.0))
    shift = abs(difference) * math.sqrt(images) / spread
    return float(norm.cdf(shift - bound) + norm.cdf(-shift - bound))


def images_needed(differences: ArrayLike, difference: float, *, power: float = 0.8, level: float = LEVEL) -> int:
    """Smallest number of images at which ``difference`` is detectable with probability ``power``; at least two."""
    if difference == 0.0:
        raise SightlineError("no number of images detects a difference of 0; name the smallest difference that matters")
    reach = float(norm.ppf((1.0 + level) / 2.0) + norm.ppf(power))
    return max(2, math.ceil((reach * _spread(differences) / difference) ** 2))
