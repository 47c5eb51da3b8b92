from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from sightline.errors import SightlineError
from sightline.statistics.intervals import percentile_interval, wilson
from sightline.statistics.paired import WinLossTie, holm, mcnemar, mcnemar_p, win_loss_tie


@given(st.integers(0, 200), st.integers(0, 200))
def test_mcnemar_is_the_exact_binomial_test_of_the_discordant_probes(b: int, c: int) -> None:
    expected = 1.0 if b + c == 0 else binomtest(b, b + c, 0.5).pvalue
    assert mcnemar_p(b, c) == pytest.approx(expected, rel=1e-9)
    assert mcnemar_p(b, c) == mcnemar_p(c, b)


def test_mcnemar_counts_who_was_right_alone() -> None:
    found = mcnemar([1, 1, 1, 0, 0], [1, 0, 0, 1, 0])
    assert (found.first_only, found.second_only, found.p) == (2, 1, 1.0)


def test_win_loss_tie_ignores_rounding_and_missing_units() -> None:
    changes = [0.5, -0.5, 5e-13, -5e-13, math.nan, 0.0, 1.0]
    assert win_loss_tie(changes) == WinLossTie(2, 1, 3)
    assert win_loss_tie(changes, higher_is_better=False) == WinLossTie(1, 2, 3)


def test_wilson_at_the_ends_is_exact_and_never_leaves_the_unit_interval() -> None:
    assert wilson(0, 10)[0] == 0.0
    assert wilson(10, 10)[1] == 1.0
    assert 0.0 < wilson(10, 10)[0] < 1.0
    assert all(math.isnan(bound) for bound in wilson(0, 0))


@given(st.integers(1, 500), st.data())
def test_wilson_is_scipys_mirrors_and_contains_the_share(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    low, high = wilson(k, n)
    other = wilson(n - k, n)
    assert (low, high) == pytest.approx((1 - other[1], 1 - other[0]), abs=1e-12)
    assert low <= k / n <= high
    assert (low, high) == pytest.approx(tuple(binomtest(k, n).proportion_ci(method="wilson")), abs=1e-12)


def test_percentiles_skip_undefined_draws() -> None:
    draws = np.append(np.arange(101.0), np.nan)
    assert percentile_interval(draws) == pytest.approx((2.5, 97.5))
    assert all(math.isnan(bound) for bound in percentile_interval(np.array([np.nan])))


def test_bad_counts_are_named() -> None:
    with pytest.raises(SightlineError, match="negative"):
        mcnemar_p(-1, 2)
    with pytest.raises(SightlineError, match="11 successes in 10"):
        wilson(11, 10)
    with pytest.raises(SightlineError, match="differ in length"):
        mcnemar([1, 0], [1])


def test_holm_multiplies_the_smallest_by_the_size_of_the_family_and_never_turns_the_order() -> None:
    # By hand: 0.01 x 4, 0.02 x 3, 0.03 x 2 (the same 0.06), 0.04 x 1 (raised to 0.06).
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    with pytest.raises(SightlineError, match="between 0 and 1"):
        holm([0.1, math.nan])
