"""How many pixels of character height a model needs: a curve for a model and its pages, and what follows from it.

    P(right | h) = top / (1 + (half / h)^slope)

with h in pixels of character height that reach the model (the rows' ``legibility``), ``top`` what it answers right
however large the text is, and ``half`` the height at which half of that is left. Where nothing is legible, P is 0. The
curve is fitted to single answers over arms of a run, so that a budget nobody ran can be planned; how far to trust it is
said by leaving out one arm after the other. Pixels that are lost by pruning and pixels that are lost by showing the
page smaller do not weigh the same: each way has a curve of its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import BoolArray, FloatArray

LEAST_ANSWERS = 30
"""Fewer answers fit any curve."""
STEPS = 200
"""Budgets that are looked at between nothing and everything."""


@dataclass(frozen=True)
class LegibilityLaw:
    """The fitted curve."""

    top: float
    slope: float
    half: float
    """Pixels."""
    answers: int

    def expected(self, pixels: ArrayLike) -> FloatArray:
        """(n,) probability of a right answer for character heights in pixels."""
        height = np.asarray(pixels, dtype=np.float64)
        log = np.log(np.maximum(height, 1e-9))
        return np.where(height > 0, self.top * expit(self.slope * (log - math.log(self.half))), 0.0)

    def pixels_for(self, share: float) -> float:
        """The character height at which this share of ``top`` is answered right."""
        return float(self.half * (share / (1.0 - share)) ** (1.0 / self.slope))


def fit_law(pixels: ArrayLike, right: ArrayLike) -> LegibilityLaw:
    """The curve of greatest likelihood over single answers; refuses rows that all look alike."""
    height, answers = np.asarray(pixels, dtype=np.float64), np.asarray(right, dtype=np.float64)
    known = np.isfinite(height) & np.isfinite(answers)
    height, answers = height[known], answers[known]
    seen = height > 0
    if seen.sum() < LEAST_ANSWERS:
        raise SightlineError(f"{int(seen.sum())} answers of known legibility are too few for a law; it needs 30")
    if np.ptp(np.log(height[seen])) < 0.2:
        raise SightlineError("text is about as legible in every answer: no law can be seen; add budgets or resize arms")
    log, said = np.log(height[seen]), answers[seen]

    def loss(values: FloatArray) -> float:
        top, slope, half = float(expit(values[0])), math.exp(float(values[1])), float(values[2])
        chance = np.clip(top * expit(slope * (log - half)), 1e-6, 1 - 1e-6)
        likelihood = said * np.log(chance) + (1 - said) * np.log(1 - chance)
        # A weak pull to a slope of 3 keeps separable answers, whose likelihood grows for ever, at a finite curve.
        return float(-likelihood.sum() + 0.5 * (values[1] - math.log(3.0)) ** 2)

    starts = [np.array([2.0, math.log(3.0), middle]) for middle in np.quantile(log, [0.1, 0.5, 0.9])]
    found = min((minimize(loss, start, method="Nelder-Mead") for start in starts), key=lambda each: float(each.fun))
    top, slope, half = found.x
    return LegibilityLaw(float(expit(top)), math.exp(float(slope)), math.exp(float(half)), int(seen.sum()))


def smallest_keep(law: LegibilityLaw, full_pixels: ArrayLike, margin: float) -> float:
    """The smallest share of tokens at which pages shown smaller are expected to lose at most ``margin``.

    Shown with a share k of its tokens a page is smaller by sqrt(k) in each direction, and so is its text. NaN where
    no share below 1 keeps the margin.
    """
    height = np.asarray(full_pixels, dtype=np.float64)
    height = height[np.isfinite(height)]
    wanted = float(law.expected(height).mean()) - margin
    keeps = np.arange(1, STEPS + 1) / STEPS
    fine = np.array([float(law.expected(height * math.sqrt(keep)).mean()) >= wanted for keep in keeps], dtype=bool)
    return float(keeps[int(np.argmax(fine))]) if fine[:-1].any() else math.nan


@dataclass(frozen=True)
class HeldOut:
    """A group of answers that the curve was not fitted to."""

    name: str
    expected: float
    found: float
    answers: int

    @property
    def error(self) -> float:
        return self.expected - self.found


def leave_one_out(
    names: Sequence[str], pixels: ArrayLike, right: ArrayLike, always: Collection[str] = ()
) -> list[HeldOut]:
    """For each name (an arm, a budget) what the curve of all others expects of its answers, and what was found.

    ``always`` are names that every plan has, such as Full: they are never left out, and are not enough for a fit.
    """
    groups, height, answers = np.asarray(names), np.asarray(pixels, dtype=float), np.asarray(right, dtype=float)
    known: BoolArray = np.isfinite(height) & np.isfinite(answers)
    base = np.isin(groups, list(always))
    held = []
    for name in (each for each in dict.fromkeys(names) if each not in always):
        own = (groups == name) & known
        if own.any() and (known & ~own & ~base).any():
            law = fit_law(height[known & ~own], answers[known & ~own])
            expected = float(law.expected(height[own]).mean())
            held.append(HeldOut(str(name), expected, float(answers[own].mean()), int(own.sum())))
    return held
