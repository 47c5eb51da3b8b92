import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr

from sightline.statistics import correlation
from sightline.statistics.bootstrap import count_blocks
from sightline.statistics.ranks import RankedValues


def by_least_squares(x: np.ndarray, y: np.ndarray, controls: list[np.ndarray]) -> float:
    """The definition, spelled out: correlation of least-squares residuals of ranks."""
    design = np.column_stack([np.ones(len(x)), *(rankdata(c) for c in controls)])
    left, right = (v - design @ np.linalg.lstsq(design, v, rcond=None)[0] for v in (rankdata(x), rankdata(y)))
    return float(left @ right / math.sqrt((left @ left) * (right @ right)))


def spearman(x: np.ndarray, y: np.ndarray, controls: Sequence[np.ndarray] = ()) -> float:
    """Of the rows as they are, each once."""
    return float(correlation.partial_spearman_draws(x, y, controls, np.ones((len(x), 1)))[0])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 3)), min_size=4, max_size=20))
def test_ranks_and_spearman_are_scipys_with_ties_and_weights_are_repeated_rows(rows: list[tuple[int, ...]]) -> None:
    x, y, weights = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert math.isnan(spearman(x, y))
    else:
        assert spearman(x, y) == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
    found = RankedValues.of(x).midranks(weights[:, None])[:, 0]
    repeated = np.repeat(np.arange(len(x)), weights.astype(int))
    if len(repeated):
        np.testing.assert_allclose(found[repeated], rankdata(x[repeated]))


def test_partial_spearman_is_correlation_of_residual_ranks() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3, 80))
    x, y = z[0] + rng.normal(size=80), z[0] - z[1] + rng.normal(size=80)
    assert spearman(x, y, list(z)) == pytest.approx(by_least_squares(x, y, list(z)), abs=1e-12)
    once = spearman(x, y, [z[0]])
    assert spearman(x, y, [z[0], np.ones(80), z[0]]) == pytest.approx(once, abs=1e-9)
    whole = np.arange(20.0)
    nothing_left = spearman(whole, whole**2, [whole])
    assert math.isnan(nothing_left), "a control that explains everything"


@pytest.mark.parametrize(("rows", "seed", "decimals"), [(40, 2, 1), *((n, s, 9) for n in (5, 6, 8) for s in range(6))])
def test_refitting_draws_rank_and_regress_the_repeated_rows(rows: int, seed: int, decimals: int) -> None:
    """Resamples of a few rows leave residuals that are nearly collinear: their correlation is 1 up to rounding."""
    x, y, *controls = np.round(np.random.default_rng(seed).normal(size=(5, rows)), decimals)
    counts = next(count_blocks(rows, 2000, seed))
    drawn = correlation.partial_spearman_draws(x, y, controls, counts.T)
    assert np.nanmin(drawn) >= -1.0
    assert np.nanmax(drawn) <= 1.0
    # Not clipped nonsense: draws that are defined are those of the definition.
    for row, value in zip(counts[:60].astype(int), drawn[:60], strict=True):
        index = np.repeat(np.arange(rows), row)
        if math.isfinite(value):
            expected = by_least_squares(x[index], y[index], [z[index] for z in controls])
            assert value == pytest.approx(expected, 1e-6 if rows < 40 else 1e-10)


def test_two_way_residuals_of_a_complete_table_have_a_closed_form() -> None:
    cube = np.random.default_rng(3).normal(size=(9, 4))
    image, method = (axis.ravel() for axis in np.indices(cube.shape))
    expected = cube - cube.mean(axis=1, keepdims=True) - cube.mean(axis=0) + cube.mean()
    np.testing.assert_allclose(correlation.two_way_residuals(cube.ravel(), image, method), expected.ravel(), atol=1e-12)


def test_two_way_residuals_of_a_table_with_gaps_are_least_squares() -> None:
    rng = np.random.default_rng(4)
    image, method = (axis.ravel() for axis in np.indices((12, 4)))
    kept = rng.random(48) < 0.8
    image, method = np.unique(image[kept], return_inverse=True)[1], method[kept]
    values = rng.normal(size=len(image))
    design = np.column_stack([image[:, None] == np.arange(12), method[:, None] == np.arange(4)]).astype(float)
    expected = correlation.residuals(values, design)
    np.testing.assert_allclose(correlation.two_way_residuals(values, image, method), expected, atol=1e-9)


def test_fixed_residual_draws_keep_the_residuals() -> None:
    rng = np.random.default_rng(6)
    left, right = rng.normal(size=(2, 24))
    image = np.repeat(np.arange(8), 3)
    counts = next(count_blocks(8, 6))
    drawn = [np.repeat(np.arange(24), row[image]) for row in counts.astype(int)]
    expected = [np.corrcoef(left[index], right[index])[0, 1] for index in drawn]
    np.testing.assert_allclose(correlation.FixedResiduals.of(left, right, image).at(counts), expected, atol=1e-12)


def test_fixed_residual_draws_are_exact_where_sums_cancel() -> None:
    """A resample of one image whose residuals lie far from the mean and close to one another."""
    left = np.array([-3e6, 1e6 - 3.7, 1e6, 1e6 + 2.9, 1e6 + 7.3])
    right = left + np.array([0.0, 0.0, 0.0, 0.0, 1e-3])
    counts, image = np.array([[0.0, 2.0], [1.0, 1.0]]), np.array([0, 1, 1, 1, 1])
    found = correlation.FixedResiduals.of(left, right, image).at(counts)
    assert found[0] == pytest.approx(np.corrcoef(left[1:] - 1e6, right[1:] - 1e6)[0, 1], abs=1e-9)
    assert found[1] == pytest.approx(np.corrcoef(left - left.mean(), right - right.mean())[0, 1], abs=1e-12)
    assert (np.abs(found) <= 1.0).all()


def test_fixed_effects_remove_what_images_and_methods_share() -> None:
    """x and y agree across images and methods only; within them they are independent."""
    rng = np.random.default_rng(7)
    image, method = (axis.ravel() for axis in np.indices((200, 4)))
    common = rng.normal(size=200)[image] * 3 + rng.normal(size=4)[method]
    x, y = common + rng.normal(size=800), common + rng.normal(size=800)
    assert spearman(x, y) > 0.6
    left = correlation.FixedResiduals.of(*correlation.conditional_residuals(x, y, image, method), image)
    (found,) = correlation.fixed_residual_intervals([left], draws=500)
    assert found.low < 0.0 < found.high
    assert abs(found.value) < 0.1


def test_images_widen_the_interval_of_what_their_rows_share() -> None:
    rng = np.random.default_rng(9)
    x, y = (np.repeat(rng.normal(size=40), 10) for _ in range(2))
    rows, images = (
        correlation.spearman_intervals({"x": x}, {"y": y}, images=by, draws=1000)["x", "y"]
        for by in (None, np.repeat(np.arange(40), 10))
    )
    assert images.high - images.low > 2 * (rows.high - rows.low)
    assert rows.value == images.value


def test_many_pairs_at_once_are_the_pairs_one_by_one() -> None:
    rng = np.random.default_rng(10)
    columns = np.round(rng.normal(size=(6, 60)) + rng.normal(size=60), 1)
    predictors, outcomes = dict(zip("ab", columns[:2], strict=True)), dict(zip("uv", columns[2:4], strict=True))
    images = np.repeat(np.arange(30), 2)
    for controls in ([], list(columns[4:])):
        together = correlation.spearman_intervals(predictors, outcomes, controls, images, draws=300)
        assert list(together) == [("a", "u"), ("a", "v"), ("b", "u"), ("b", "v")]
        for (x, y), found in together.items():
            each = {x: predictors[x]}, {y: outcomes[y]}
            alone = correlation.spearman_intervals(*each, controls, images, draws=300)[x, y]
            expected = (alone.value, alone.low, alone.high)
            assert (found.value, found.low, found.high) == pytest.approx(expected, abs=1e-12)
            assert found.value == pytest.approx(by_least_squares(predictors[x], outcomes[y], controls), abs=1e-12)
