"""The curve of right answers over character heights, and what is planned with it."""

import math

import numpy as np
import pytest

from sightline.statistics.legibility_law import LegibilityLaw, fit_law, leave_one_out, smallest_keep
from tests.refusals import Refused

TRUE = LegibilityLaw(top=0.95, slope=4.0, half=8.0, answers=0)


def drawn(heights: np.ndarray, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(len(heights)) < TRUE.expected(heights)


def test_a_known_curve_is_found_again_one_height_gives_a_finite_one_and_too_little_none(refused: Refused) -> None:
    heights = np.random.default_rng(1).uniform(2, 30, 4000)
    found = fit_law(heights, drawn(heights, 2))
    assert found.top == pytest.approx(0.95, abs=0.02)
    assert found.half == pytest.approx(8.0, abs=0.4)
    assert found.slope == pytest.approx(4.0, abs=0.6)
    assert found.pixels_for(0.5) == found.half < found.pixels_for(0.95)
    assert found.expected([0.0, 1e6]).tolist() == pytest.approx([0.0, found.top])
    heights = np.linspace(4, 16, 80)
    found = fit_law(heights, heights > 9)
    assert 8 < found.half < 10
    assert 8 < found.slope < math.inf
    for count, about in ((10, "too few"), (50, "as legible")):
        refused(about, fit_law, np.full(count, 9.0), np.ones(count))


def test_the_smallest_share_of_tokens_keeps_the_margin_and_the_next_smaller_does_not() -> None:
    keep = smallest_keep(TRUE, np.full(50, 20.0), 0.05)
    least = float(TRUE.expected(20.0)) - 0.05
    assert float(TRUE.expected(20.0 * math.sqrt(keep))) >= least > float(TRUE.expected(20.0 * math.sqrt(keep - 0.005)))
    assert math.isnan(smallest_keep(LegibilityLaw(0.9, 30.0, 19.9, 0), np.full(50, 20.0), 0.001))


def test_budgets_that_were_left_out_are_expected_as_they_are_found() -> None:
    full, keeps = np.random.default_rng(3).uniform(8, 30, 400), (1.0, 0.5, 0.3, 0.1)
    names = [f"resize:{keep}" for keep in keeps for _ in full]
    pixels = np.concatenate([full * math.sqrt(keep) for keep in keeps])
    right = drawn(pixels, 4)
    held = leave_one_out(names, pixels, right)
    assert [each.name for each in held] == ["resize:1.0", "resize:0.5", "resize:0.3", "resize:0.1"]
    assert max(abs(each.error) for each in held) < 0.06
    assert leave_one_out(names, pixels, right, always=["resize:1.0"]) == held[1:]
    assert leave_one_out(names[:800], pixels[:800], right[:800], always=["resize:1.0"]) == []
