"""Ranks and AUROC of a resample, for many resamples at once, without sorting more than once.

A bootstrap resample is a weight per row (how often it was drawn). Sorting the values once gives, for every row, the
range [low, high) of rows that tie with it; the total weight below any row is then one cumulative sum over sorted rows.
Arrays put rows first and draws second, (n, d), so that gathers and cumulative sums run over contiguous memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sightline.statistics.arrays import BoolArray, FloatArray, IntArray


def _cumulative(weights: FloatArray) -> FloatArray:
    """(n, d) -> (n + 1, d): total weight of the first i rows."""
    total = np.zeros((weights.shape[0] + 1, weights.shape[1]))
    np.cumsum(weights, axis=0, out=total[1:])
    return total


@dataclass(frozen=True)
class RankedValues:
    """n values sorted once; ``midranks`` ranks them within any number of weighted resamples."""

    order: IntArray
    low: IntArray
    high: IntArray

    @classmethod
    def of(cls, values: FloatArray) -> RankedValues:
        order = np.argsort(values, kind="stable")
        ascending = values[order]
        return cls(
            order, np.searchsorted(ascending, values, side="left"), np.searchsorted(ascending, values, side="right")
        )

    def midranks(self, weights: FloatArray) -> FloatArray:
        """(n, d) weights -> (n, d) average ranks, counted from 1, of each row among the weighted rows of each draw."""
        below = _cumulative(weights[self.order])
        return 0.5 * (below[self.low] + below[self.high] + 1.0)


@dataclass(frozen=True)
class RankedMargins:
    """Positive and negative margins sorted once; ``auroc`` evaluates any number of weighted resamples of images."""

    positive_image: IntArray
    """(P,) image of each positive probe."""
    negative_image: IntArray
    """(Q,) image of each negative probe, by ascending margin."""
    low: IntArray
    """(P,) how many negatives lie strictly below each positive."""
    high: IntArray
    """(P,) how many negatives lie below or tie."""

    @classmethod
    def of(cls, labels: BoolArray, margins: FloatArray, image_index: IntArray) -> RankedMargins:
        positive, negative = margins[labels], margins[~labels]
        order = np.argsort(negative, kind="stable")
        ascending = negative[order]
        # Ascending positives make the gathers below walk through memory in one direction.
        climb = np.argsort(positive, kind="stable")
        return cls(
            image_index[labels][climb],
            image_index[~labels][order],
            np.searchsorted(ascending, positive[climb], side="left"),
            np.searchsorted(ascending, positive[climb], side="right"),
        )

    def auroc(self, weights: FloatArray) -> FloatArray:
        """(m, d) image weights -> (d,) P(margin of a positive > margin of a negative), ties counting one half.

        sum_p w_p (W(< p) + W(<= p)) / 2 / (W+ W-): the Mann-Whitney statistic with rows repeated w times. NaN for a
        draw in which one class has no weight.
        """
        below = _cumulative(weights[self.negative_image])
        positive = weights[self.positive_image]
        wins = 0.5 * np.einsum("pd,pd->d", positive, below[self.low] + below[self.high])
        with np.errstate(invalid="ignore", divide="ignore"):
            area: FloatArray = wins / (positive.sum(axis=0) * below[-1])
        return area
