"""Rank correlations between coverage and behaviour, with controls, fixed effects and image-cluster intervals.

Two bootstraps. *Refitting* repeats ranking and regression in every draw, so the interval carries their uncertainty.
*Fixed residuals* rank and regress once and resample images of residuals: cheaper, and narrower by what it ignores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from sightline.errors import SightlineError
from sightline.statistics.arrays import FloatArray, IntArray
from sightline.statistics.bootstrap import DRAWS, SEED, count_blocks
from sightline.statistics.intervals import LEVEL, Estimate, percentile_interval
from sightline.statistics.ranks import RankedValues

_RANK_TOLERANCE = 1e-12  # relative; below it a direction of the controls, or a residual, counts as absent


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


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson correlation of average ranks."""
    return pearson(ranks(x), ranks(y))


def partial_spearman(x: ArrayLike, y: ArrayLike, controls: Sequence[ArrayLike]) -> float:
    """Correlation of what is left of the ranks of x and y after regressing both on the ranks of the controls."""
    first, second, others = _inputs(x, y, controls)
    ranked = np.stack([ranks(column) for column in (first, second, *others)])
    return float(_correlation(ranked[:, :, None], np.ones((len(first), 1)))[0])


def residuals(values: FloatArray, design: FloatArray) -> FloatArray:
    """(n,) what is left of values after least squares on an intercept and the (n, p) design."""
    columns = np.column_stack([np.ones(len(values)), design])
    return np.asarray(values - columns @ np.linalg.lstsq(columns, values, rcond=None)[0])


def two_way_residuals(values: FloatArray, first: IntArray, second: IntArray, sweeps: int = 1000) -> FloatArray:
    """(n,) what is left after removing the effects of two groupings, each given as group numbers (n,).

    Alternately subtracts group means until nothing moves. When every pair of groups has equally many rows, one pass is
    exact: value - mean of its first group - mean of its second + grand mean.
    """
    left: FloatArray = values - values.mean()
    scale = max(float(np.abs(left).max()), 1.0)
    for _ in range(sweeps):
        before = left
        for group in (first, second):
            means: FloatArray = np.bincount(group, left) / np.maximum(np.bincount(group), 1)
            left = left - means[group]
        if np.abs(left - before).max() <= 1e-13 * scale:
            break
    return left


def _correlation(columns: FloatArray, weights: FloatArray) -> FloatArray:
    """(k, n, d) columns x, y, controls... and (n, d) row weights -> (d,) weighted partial correlation of x and y.

    With S the weighted covariance of the k columns, the residual covariance of (x, y) is
    S_ab - S_ac S_cc^+ S_cb; the pseudo-inverse lets collinear or constant controls of a draw drop out, as least
    squares does. NaN where x or y has no variance left.
    """
    total = weights.sum(axis=0)
    centred = columns - np.einsum("knd,nd->kd", columns, weights)[:, None] / total
    covariance = np.einsum("ind,jnd->dij", centred * weights, centred)
    spread = np.sqrt(np.einsum("dii->di", covariance))
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = covariance / (spread[:, :, None] * spread[:, None, :])
    scaled = np.where(np.isfinite(scaled), scaled, 0.0)
    if len(columns) > 2:
        across = scaled[:, :2, 2:]
        inverse = np.linalg.pinv(scaled[:, 2:, 2:], rcond=_RANK_TOLERANCE, hermitian=True)
        left = scaled[:, :2, :2] - across @ inverse @ across.transpose(0, 2, 1)
    else:
        left = scaled
    variance = np.einsum("dii->di", left[:, :2, :2])
    alive = (variance > _RANK_TOLERANCE).all(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(alive, left[:, 0, 1] / np.sqrt(variance[:, 0] * variance[:, 1]), np.nan)


def _group_numbers(groups: ArrayLike, length: int, name: str) -> IntArray:
    found = np.asarray(groups)
    if found.shape != (length,):
        raise SightlineError(f"{name} has shape {found.shape}, expected one value for each of {length} rows")
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def _estimate(
    value: float, statistic: Callable[[FloatArray], FloatArray], images: int, draws: int, seed: int, level: float
) -> Estimate:
    values = np.concatenate([statistic(counts) for counts in count_blocks(images, draws, seed)])
    low, high = percentile_interval(values, level)
    reason = "" if math.isfinite(value) else "a column does not vary once the controls are removed"
    return Estimate(value, low, high, int(np.isfinite(values).sum()), reason)


def partial_spearman_draws(
    x: ArrayLike, y: ArrayLike, controls: Sequence[ArrayLike], weights: FloatArray, fixed: FloatArray | None = None
) -> FloatArray:
    """(n, d) row weights -> (d,) partial Spearman of each weighted resample, ranked and regressed anew in each.

    ``fixed`` (p, n) are further controls that are not ranked, such as method indicators.
    """
    first, second, others = _inputs(x, y, controls)
    ranked = [RankedValues.of(column).midranks(weights) for column in (first, second, *others)]
    if fixed is not None:
        ranked.extend(np.broadcast_to(row[:, None], weights.shape) for row in fixed)
    return _correlation(np.stack(ranked), weights)


def spearman_interval(
    x: ArrayLike,
    y: ArrayLike,
    controls: Sequence[ArrayLike] = (),
    images: ArrayLike | None = None,
    *,
    draws: int = DRAWS,
    seed: int = SEED,
    level: float = LEVEL,
) -> Estimate:
    """(Partial) Spearman with a refitting bootstrap over images; without ``images`` every row is its own."""
    first, second, others = _inputs(x, y, controls)
    index = np.arange(len(first)) if images is None else _group_numbers(images, len(first), "images")
    value = partial_spearman(first, second, others)

    def statistic(counts: FloatArray) -> FloatArray:
        return partial_spearman_draws(first, second, others, np.ascontiguousarray(counts.T[index]))

    return _estimate(value, statistic, int(index.max()) + 1, draws, seed, level)


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
    design = np.column_stack([*(ranks(column) for column in others), _indicators(method).T])
    return residuals(ranks(first), design), residuals(ranks(second), design)


def fixed_residual_draws(left: FloatArray, right: FloatArray, images: ArrayLike, counts: FloatArray) -> FloatArray:
    """(d, m) counts of images -> (d,) Pearson correlation of two residual columns (n,) over each resample of images."""
    image = _group_numbers(images, len(left), "images")
    left, right = left - left.mean(), right - right.mean()  # small sums keep the differences below exact
    moments = (np.ones(len(left)), left, right, left**2, right**2, left * right)
    per_image = np.stack([np.bincount(image, moment) for moment in moments], axis=1)
    n, a, b, aa, bb, ab = (counts @ per_image).T
    spread = np.stack([aa - a * a / n, bb - b * b / n])
    alive = (spread > _RANK_TOLERANCE * np.stack([aa, bb])).all(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(alive, (ab - a * b / n) / np.sqrt(spread[0] * spread[1]), np.nan)


def conditional_spearman(
    x: ArrayLike,
    y: ArrayLike,
    images: ArrayLike,
    methods: ArrayLike,
    controls: Sequence[ArrayLike] | None = None,
    *,
    refit: bool = False,
    draws: int = DRAWS,
    seed: int = SEED,
    level: float = LEVEL,
) -> Estimate:
    """Correlation of ``conditional_residuals`` with an image-cluster interval.

    ``refit=False`` keeps the residuals fixed while images are resampled; ``refit=True`` ranks and regresses anew in
    every draw (without controls that needs every image to have every method exactly once).
    """
    left, right = conditional_residuals(x, y, images, methods, controls)
    image = _group_numbers(images, len(left), "images")
    count = int(image.max()) + 1

    def statistic(counts: FloatArray) -> FloatArray:
        if not refit:
            return fixed_residual_draws(left, right, image, counts)
        if controls is None:
            return two_way_draws(x, y, images, methods, counts)
        indicators = _indicators(_group_numbers(methods, len(left), "methods"))
        return partial_spearman_draws(x, y, controls, np.ascontiguousarray(counts.T[image]), indicators)

    return _estimate(pearson(left, right), statistic, count, draws, seed, level)


def two_way_draws(x: ArrayLike, y: ArrayLike, images: ArrayLike, methods: ArrayLike, counts: FloatArray) -> FloatArray:
    """(d, m) counts of images -> (d,) correlation of ranks freed of image and method effects, refitted in each draw."""
    first, second, _ = _inputs(x, y, ())
    image, method = (_group_numbers(g, len(first), n) for g, n in ((images, "images"), (methods, "methods")))
    count, width = int(image.max()) + 1, int(method.max()) + 1
    order = np.lexsort((method, image))
    if not np.array_equal(method[order], np.tile(np.arange(width), count)):
        raise SightlineError("refitting image and method effects needs every image to have every method exactly once")
    weights = np.repeat(counts.T, width, axis=0)
    freed = []
    for column in (first, second):
        cube = RankedValues.of(column[order]).midranks(weights).reshape(count, width, -1)
        cube = cube - cube.mean(axis=1, keepdims=True)
        cube = cube - np.einsum("imd,di->md", cube, counts) / count
        freed.append(cube.reshape(weights.shape))
    return _correlation(np.stack(freed), weights)


def _indicators(method: IntArray) -> FloatArray:
    """(k - 1, n) one row per method but the first, whose effect is the intercept."""
    return np.equal(np.arange(1, int(method.max()) + 1)[:, None], method).astype(np.float64)
