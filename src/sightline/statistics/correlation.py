"""Rank correlations between coverage and behaviour, with controls, fixed effects and image-cluster intervals.

Two bootstraps. *Refitting* repeats ranking and regression in every draw, so the interval carries their uncertainty.
*Fixed residuals* rank and regress once and resample images of residuals: cheaper, and narrower by what it ignores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import FloatArray, IntArray
from sightline.statistics.bootstrap import DRAWS, count_blocks
from sightline.statistics.intervals import Estimate, ImageShares, interval
from sightline.statistics.ranks import RankedValues

_RANK_TOLERANCE = 1e-12  # relative; below it a direction of the controls, or a residual, counts as absent
_SWEEPS = 1000
_CANCELLED = 1e-3  # share of a sum of squares below which a difference of such sums has lost digits that matter


def _column(values: ArrayLike, name: str, length: int | None = None) -> FloatArray:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or (length is not None and len(column) != length):
        raise SightlineError(f"{name} has shape {column.shape}, expected one value per row")
    if not np.isfinite(column).all():
        raise SightlineError(f"{name} has values that are not finite; leave those rows out before correlating")
    return column


def _inputs(
    x: ArrayLike, y: ArrayLike, controls: Sequence[ArrayLike]
) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
    """Checked columns; controls that do not vary are dropped, since they control for nothing."""
    first = _column(x, "x")
    second = _column(y, "y", len(first))
    others = [_column(control, f"control {i + 1}", len(first)) for i, control in enumerate(controls)]
    if len(first) < 3:
        raise SightlineError(f"a correlation needs at least three rows, got {len(first)}")
    return first, second, [control for control in others if np.ptp(control) > 0.0]


def ranks(values: ArrayLike) -> FloatArray:
    """Ranks from 1, ties sharing their average."""
    return np.asarray(rankdata(values), dtype=np.float64)


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """Correlation of two columns; NaN when one does not vary."""
    first, second, _ = _inputs(x, y, ())
    return float(_correlation(np.stack([first, second])[:, :, None], np.ones((len(first), 1)))[0])


def residuals(values: FloatArray, design: FloatArray) -> FloatArray:
    """(n,) what is left of values after least squares on an intercept and the (n, p) design."""
    columns = np.column_stack([np.ones(len(values)), design])
    return np.asarray(values - columns @ np.linalg.lstsq(columns, values, rcond=None)[0])


def two_way_residuals(values: FloatArray, first: IntArray, second: IntArray) -> FloatArray:
    """(n,) what is left after removing the effects of two groupings, each given as group numbers (n,).

    Alternately subtracts group means until nothing moves. When every pair of groups has equally many rows, one pass is
    exact: value - mean of its first group - mean of its second + grand mean.
    """
    left: FloatArray = values - values.mean()
    scale = max(float(np.abs(left).max()), 1.0)
    for _ in range(_SWEEPS):
        before = left
        for group in (first, second):
            means: FloatArray = np.bincount(group, left) / np.maximum(np.bincount(group), 1)
            left = left - means[group]
        if np.abs(left - before).max() <= 1e-13 * scale:
            break
    return left


def _residuals(columns: FloatArray, controls: FloatArray, weights: FloatArray) -> FloatArray:
    """(k, n, d) columns -> (k, n, d) what weighted least squares on an intercept and the (c, n, d) controls leaves.

    Residuals come scaled by sqrt(weight) and to length 1, so that a weighted correlation is a plain dot product; they
    are 0 where nothing is left. Directions are made orthogonal one after the other (Gram-Schmidt), each twice, because
    once loses digits among nearly collinear controls. A control that the earlier ones explain in some draw drops out of
    that draw, as it does from least squares.
    """
    root = np.sqrt(weights)
    basis: list[FloatArray] = [root / np.sqrt(weights.sum(axis=0))]
    for control in controls:
        basis.append(_unit(control * root, basis))
    return np.stack([_unit(column * root, basis) for column in columns])


def _unit(column: FloatArray, basis: Sequence[FloatArray]) -> FloatArray:
    """(n, d) the part of a column that is orthogonal to the basis, of length 1 in each draw; 0 where there is none."""
    before = np.einsum("nd,nd->d", column, column)
    left = column
    for _ in range(2):
        for direction in basis:
            left = left - np.einsum("nd,nd->d", direction, left) * direction
    after = np.einsum("nd,nd->d", left, left)
    alive = after > _RANK_TOLERANCE * before
    return np.asarray(left * (alive / np.sqrt(np.where(alive, after, 1.0))))


def _dot(left: FloatArray, right: FloatArray) -> FloatArray:
    """(n, d), (n, d) unit residuals -> (d,) their correlation; NaN where one of them is 0.

    A product of two unit vectors leaves [-1, 1] by the last bit at most, and that bit is taken off.
    """
    alive = left.any(axis=0) & right.any(axis=0)
    return np.where(alive, np.clip(np.einsum("nd,nd->d", left, right), -1.0, 1.0), np.nan)


def _correlation(columns: FloatArray, weights: FloatArray) -> FloatArray:
    """(k, n, d) columns x, y, controls... and (n, d) row weights -> (d,) weighted partial correlation of x and y.

    NaN where x or y has no variance left.
    """
    return _dot(*_residuals(columns[:2], columns[2:], weights))


def _group_numbers(groups: ArrayLike, length: int, name: str) -> IntArray:
    found = np.asarray(groups)
    if found.shape != (length,):
        raise SightlineError(f"{name} has shape {found.shape}, expected one value for each of {length} rows")
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def correlation_shares(left: FloatArray, right: FloatArray, image: IntArray) -> ImageShares:
    """What each image has in the Pearson correlation of two columns (n,): its sum of a b - r (a^2 + b^2) / 2.

    a and b are the columns around their means, of length 1; ``image`` numbers the images of the rows. No share in it
    has a limit, so where few images differ the interval is Student's, and where none does there is none.
    """
    a, b = (column - column.mean() for column in (left, right))
    lengths = [float(np.sqrt(column @ column)) for column in (a, b)]
    images = int(image.max()) + 1
    if min(lengths) == 0.0:
        return ImageShares(math.nan, np.zeros(images), np.ones(images, dtype=bool))
    a, b = a / lengths[0], b / lengths[1]
    r = float(np.clip(a @ b, -1.0, 1.0))
    added = np.bincount(image, a * b - r * (a * a + b * b) / 2.0, images)
    # A column that varies in few images alone is known from those: 1 / sum of squares of the parts of its variance.
    carried = [1.0 / float(np.square(np.bincount(image, column * column, images)).sum()) for column in (a, b)]
    changes = added * images / max(1, images - 1)
    return ImageShares(r, changes, np.ones(images, dtype=bool), math.nan, (-1.0, 1.0), min(carried))


def _estimate(value: float, values: FloatArray, shares: ImageShares) -> Estimate:
    """A correlation and its interval from (draws,) draws."""
    if not math.isfinite(value):
        words = "a column does not vary once the controls are removed"
        return Estimate(value, math.nan, math.nan, int(np.isfinite(values).sum()), words, "none")
    return interval(values, replace(shares, value=value))


def partial_spearman_draws(
    x: ArrayLike, y: ArrayLike, controls: Sequence[ArrayLike], weights: FloatArray
) -> FloatArray:
    """(n, d) row weights -> (d,) partial Spearman of each weighted resample, ranked and regressed anew in each.

    That is the correlation of what is left of the ranks of x and y after regressing both on the ranks of the controls.
    """
    first, second, others = _inputs(x, y, controls)
    ranked = [RankedValues.of(column).midranks(weights) for column in (first, second, *others)]
    return _correlation(np.stack(ranked), weights)


def spearman_intervals(
    predictors: Mapping[str, ArrayLike],
    outcomes: Mapping[str, ArrayLike],
    controls: Sequence[ArrayLike] = (),
    images: ArrayLike | None = None,
    *,
    draws: int = DRAWS,
) -> dict[tuple[str, str], Estimate]:
    """(predictor, outcome) -> their (partial) Spearman with a refitting bootstrap over images.

    Without ``images`` every row is its own. In every draw each column is ranked and regressed once, however many pairs
    it stands in.
    """
    columns = {**predictors, **outcomes}
    if not predictors or not outcomes or len(columns) < len(predictors) + len(outcomes):
        raise SightlineError("correlations need predictors and outcomes of different names")
    first = next(iter(columns))
    length = len(_column(columns[first], first))
    checked = {name: _column(values, name, length) for name, values in columns.items()}
    _, _, held = _inputs(checked[first], checked[first], controls)
    index = np.arange(length) if images is None else _group_numbers(images, length, "images")
    ranked = [RankedValues.of(column) for column in (*checked.values(), *held)]
    place = {name: i for i, name in enumerate(checked)}
    pairs = [(x, y) for x in predictors for y in outcomes]

    def correlations(counts: FloatArray) -> FloatArray:
        """(d, m) counts of images -> (pairs, d)."""
        weights = np.ascontiguousarray(counts.T[index])
        drawn = np.stack([column.midranks(weights) for column in ranked])
        left = _residuals(drawn[: len(checked)], drawn[len(checked) :], weights)
        return np.stack([_dot(left[place[x]], left[place[y]]) for x, y in pairs])

    units = int(index.max()) + 1
    points = correlations(np.ones((1, units)))[:, 0]
    blocks = count_blocks(units, draws)
    values = np.concatenate([correlations(counts) for counts in blocks], axis=1)
    whole = np.stack([column.midranks(np.ones((length, 1))) for column in ranked])
    left = _residuals(whole[: len(checked)], whole[len(checked) :], np.ones((length, 1)))[:, :, 0]
    return {
        (x, y): _estimate(float(points[i]), values[i], correlation_shares(left[place[x]], left[place[y]], index))
        for i, (x, y) in enumerate(pairs)
    }


def conditional_residuals(
    x: ArrayLike, y: ArrayLike, images: ArrayLike, methods: ArrayLike, controls: Sequence[ArrayLike] | None = None
) -> tuple[FloatArray, FloatArray]:
    """What is left of the ranks of x and y over (image, method) rows.

    With ``controls``: after regressing on ranked controls and method indicators. Without: after removing image and
    method effects (two-way).
    """
    first, second, others = _inputs(x, y, controls or ())
    method = _group_numbers(methods, len(first), "methods")
    if controls is None:
        image = _group_numbers(images, len(first), "images")
        return two_way_residuals(ranks(first), image, method), two_way_residuals(ranks(second), image, method)
    own = np.equal(method[:, None], np.arange(1, int(method.max()) + 1))  # the effect of method 0 is the intercept
    design = np.column_stack([*(ranks(column) for column in others), own.astype(np.float64)])
    return residuals(ranks(first), design), residuals(ranks(second), design)


@dataclass(frozen=True)
class FixedResiduals:
    """Two residual columns as moments per image; ``at`` correlates them over any number of resamples of images."""

    left: FloatArray
    right: FloatArray
    image: IntArray
    """(n,) which of the m images a row belongs to."""
    moments: FloatArray
    """(m, 6) sums of 1, left, right, left^2, right^2, left right, both columns around their means."""

    @classmethod
    def of(cls, left: FloatArray, right: FloatArray, image: IntArray) -> FixedResiduals:
        a, b = left - left.mean(), right - right.mean()
        per_image = [np.bincount(image).astype(np.float64), np.bincount(image, a), np.bincount(image, b)]
        per_image += [np.bincount(image, x * y) for x, y in ((a, a), (b, b), (a, b))]
        return cls(left, right, image, np.stack(per_image, axis=1))

    def at(self, counts: FloatArray) -> FloatArray:
        """(d, m) counts of images -> (d,) correlations.

        A product of counts and sums per image gives all draws at once. Where a resample hardly varies, sums of squares
        cancel and their difference is rounding: those few draws are correlated row by row.
        """
        n, a, b, aa, bb, ab = (counts @ self.moments).T
        spread = np.stack([aa - a * a / n, bb - b * b / n])
        cancelled = (spread <= _CANCELLED * np.stack([aa, bb])).any(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            found = (ab - a * b / n) / np.sqrt(spread[0] * spread[1])
        if cancelled.any():
            weights = np.ascontiguousarray(counts[cancelled].T[self.image])
            centred = np.stack([column - column.mean() for column in (self.left, self.right)])
            columns = np.broadcast_to(centred[:, :, None], (2, *weights.shape))
            found[cancelled] = _correlation(columns, weights)
        return np.asarray(np.clip(found, -1.0, 1.0))


def fixed_residual_intervals(pairs: Sequence[FixedResiduals], *, draws: int = DRAWS) -> list[Estimate]:
    """The correlation of each pair over the same images, with intervals from the same draws of them."""
    blocks = [[pair.at(counts) for pair in pairs] for counts in count_blocks(len(pairs[0].moments), draws)]
    return [
        _estimate(
            pearson(pair.left, pair.right),
            np.concatenate([block[place] for block in blocks]),
            correlation_shares(pair.left, pair.right, pair.image),
        )
        for place, pair in enumerate(pairs)
    ]
