"""Intervals in words, so that nobody has to read a sign convention to read a report."""

from __future__ import annotations

import math
from typing import Literal

from sightline.errors import SightlineError


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
