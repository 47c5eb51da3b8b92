"""Ranks and AUROC of a resample, for many resamples at once, without sorting more than once.

A bootstrap resample is a weight per row (how often it was drawn). Sorting the values once gives, for every row, the
range [low, high) of rows that tie with it; the total weight below any row is then one cumulative sum over sorted rows.
Ranks put rows first and draws second, (n, d), so that gathers and cumulative sums run over contiguous memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sightline.statistics.arm_rows import AnyArray, BoolArray, FloatArray, IntArray

_BLOCK_CELLS = 1 << 15  # rows times draws held at once, in a processor cache


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
        below = np.zeros((weights.shape[0] + 1, weights.shape[1]))  # total weight of the first i rows
        np.cumsum(weights[self.order], axis=0, out=below[1:])
        return 0.5 * (below[self.low] + below[self.high] + 1.0)


@dataclass(frozen=True)
class RankedMargins:
    """All margins sorted once; ``auroc`` evaluates any number of resamples of images.

    A resample repeats rows, so its statistic is a sum of whole numbers: every positive's count times the negatives
    below it, which one running sum over the sorted rows gives. Counts are small, and bytes of them travel fast.
    """

    orders: tuple[tuple[IntArray, BoolArray], ...]
    """By ascending margin the (n,) image of each row, and whether it is a negative. Among equal margins positives come
    first; where some of them tie with negatives there is a second order in which they come last: a tie counts half."""

    @classmethod
    def of(cls, labels: BoolArray, margins: FloatArray, image_index: IntArray) -> RankedMargins:
        def ordered(last_among_equals: BoolArray) -> tuple[IntArray, BoolArray]:
            order = np.lexsort((last_among_equals, margins))
            return image_index[order], ~labels[order]

        first, last = ordered(~labels), ordered(labels)
        return cls((first,) if np.array_equal(first[1], last[1]) else (first, last))

    def auroc(self, counts: FloatArray) -> FloatArray:
        """(d, m) how often each image was drawn -> (d,) P(margin of a positive > margin of a negative), ties one half.

        sum_p w_p (W(< p) + W(<= p)) / 2 / (W+ W-): the Mann-Whitney statistic with rows repeated w times. NaN for a
        draw in which one class has no weight.
        """
        step = max(1, _BLOCK_CELLS // len(self.orders[0][0]))
        small = counts.astype(np.min_scalar_type(int(counts.max())))
        blocks = [self._auroc(small[start : start + step]) for start in range(0, len(small), step)]
        return np.concatenate(blocks)

    def _auroc(self, counts: AnyArray) -> FloatArray:
        wins: FloatArray = np.zeros(len(counts))
        for image, negative in self.orders:
            drawn = np.take(counts, image, axis=1)
            below = np.cumsum(drawn * negative, axis=1, dtype=np.int64)
            positive = (drawn * ~negative).astype(np.float64)
            # Sums of whole numbers below 2**53 are exact, in whatever order they are added.
            wins += np.einsum("dn,dn->d", positive, below.astype(np.float64)) / len(self.orders)
        with np.errstate(invalid="ignore", divide="ignore"):
            area: FloatArray = wins / (positive.sum(axis=1) * below[:, -1])
        return area

    def sizes(self, images: int) -> list[FloatArray]:
        """(m,) how many positives each image has, and (m,) how many negatives."""
        image, negative = self.orders[0]
        return [np.bincount(image[kind], minlength=images).astype(np.float64) for kind in (~negative, negative)]

    def without_each(self, images: int) -> FloatArray:
        """(m,) the AUROC of all images but one, for each of them; NaN where one class is then gone.

        Without an image go the pairs of its positives with all negatives and of all positives with its negatives;
        pairs within the image, counted twice so, come back once. One pass for all images.
        """
        wins: FloatArray = np.zeros(images)
        for image, negative in self.orders:
            negatives = np.bincount(image[negative], minlength=images)
            positives = np.bincount(image[~negative], minlength=images)
            below = np.cumsum(negative, dtype=np.int64)
            above = positives.sum() - np.cumsum(~negative, dtype=np.int64)
            gone = np.bincount(image, weights=np.where(negative, above, below), minlength=images)
            grouped = np.argsort(image, kind="stable")
            group, is_negative = image[grouped], negative[grouped]
            before = np.cumsum(negatives) - negatives  # negatives of the images before this one
            within = np.where(is_negative, 0, np.cumsum(is_negative, dtype=np.int64) - before[group])
            back = np.bincount(group, weights=within, minlength=images)
            wins += (below[~negative].sum() - gone + back) / len(self.orders)
        with np.errstate(invalid="ignore", divide="ignore"):
            area: FloatArray = wins / ((positives.sum() - positives) * (negatives.sum() - negatives))
        return area
