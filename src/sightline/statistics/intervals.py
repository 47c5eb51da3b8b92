"""Two kinds of 95% interval: percentiles of bootstrap draws, and Wilson's for a plain proportion.

Percentiles say nothing where resampling cannot vary a share, as at 0 of 40: there Wilson's takes over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import norm

from sightline.errors import SightlineError
from sightline.statistics.arrays import FloatArray

LEVEL = 0.95
FEWEST = 10
"""With fewer probes or images than this, resamples are too much alike for their percentiles to bound a share."""
IntervalKind = Literal["percentile", "wilson"]


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


def percentile_interval(draws: FloatArray, level: float = LEVEL) -> tuple[float, float]:
    """Linear-interpolated percentiles (1 - level) / 2 and (1 + level) / 2 of the finite draws; NaN when none is."""
    finite = draws[np.isfinite(draws)]
    if finite.size == 0:
        return math.nan, math.nan
    low, high = np.quantile(finite, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return float(low), float(high)


def share_interval(
    share: float, draws: FloatArray, probes: int, images: int, level: float = LEVEL
) -> tuple[float, float, IntervalKind]:
    """(low, high, kind) of a share of ``probes`` on ``images``: percentiles of its draws, or Wilson's where they fail.

    They fail where all draws are equal (nobody or everybody, or the same share in every image) and on fewer than
    ``FEWEST`` probes or images. Wilson's then takes images for its trials, not probes: probes of one image may all
    stand or fall together.
    """
    finite = draws[np.isfinite(draws)]
    if finite.size and min(probes, images) >= FEWEST and np.ptp(finite) > 1e-12:
        return *percentile_interval(finite, level), "percentile"
    return *wilson(share * images, images, level), "wilson"


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
