"""Exact and sign statistics of two arms that answered the same probes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from sightline.errors import SightlineError
from sightline.statistics.arrays import flags

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
