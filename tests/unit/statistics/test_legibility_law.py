"""The curve of right answers over character heights, and what is planned with it."""

import math

import numpy as np
import pytest

from sightline.statistics.legibility_law import LegibilityLaw, fit_law, leave_one_out, smallest_keep
from tests.refusals import Refused

TRUE = LegibilityLaw(top=0.95, slope=4.0, half=8.0, answers=0)


def drawn(heights: np.ndarray, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(len(heights)) < TRUE.expected(heights)


def test_a_known_curve_is_found_again_and_answers_that_one_height_separates_give_a_finite_one() -> None:
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
    assert math.isfinite(found.slope)
    assert found.slope > 8


def test_the_smallest_share_of_tokens_keeps_the_margin_and_the_next_smaller_does_not() -> None:
    heights = np.full(50, 20.0)
    keep = smallest_keep(TRUE, heights, 0.05)
    full = float(TRUE.expected(20.0))
    assert float(TRUE.expected(20.0 * math.sqrt(keep))) >= full - 0.05
    assert float(TRUE.expected(20.0 * math.sqrt(keep - 0.005))) < full - 0.05
    assert math.isnan(smallest_keep(LegibilityLaw(0.9, 30.0, 19.9, 0), heights, 0.001))


def test_budgets_that_were_left_out_are_expected_as_they_are_found() -> None:
    rng = np.random.default_rng(3)
    full = rng.uniform(8, 30, 400)
    names, heights = [], []
    for keep in (1.0, 0.5, 0.3, 0.1):
        names += [f"resize:{keep}"] * len(full)
        heights.append(full * math.sqrt(keep))
    pixels = np.concatenate(heights)
    held = leave_one_out(names, pixels, drawn(pixels, 4))
    assert [each.name for each in held] == ["resize:1.0", "resize:0.5", "resize:0.3", "resize:0.1"]
    assert max(abs(each.error) for each in held) < 0.06
    kept = leave_one_out(names, pixels, drawn(pixels, 4), always=["resize:1.0"])
    assert kept == held[1:]
    two = [name for name in names if name in ("resize:1.0", "resize:0.5")]
    assert leave_one_out(two, pixels[: len(two)], drawn(pixels[: len(two)], 4), always=["resize:1.0"]) == []


@pytest.mark.parametrize(("heights", "about"), [(np.full(10, 9.0), "too few"), (np.full(50, 9.0), "as legible")])
def test_rows_that_show_no_law_are_refused(heights: np.ndarray, about: str, refused: Refused) -> None:
    refused(about, fit_law, heights, heights > 8)
