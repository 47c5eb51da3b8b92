from __future__ import annotations

import math

import pytest

from sightline.errors import SightlineError
from sightline.statistics.paired import describe_difference, describe_noninferiority, equivalence, is_noninferior


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((0.003, -0.014, 0.020), "not distinguishable from Full: -0.014 to +0.020"),
        ((-0.039, -0.071, -0.007), "lower than Full by 0.039 (0.007 to 0.071)"),
        ((0.246, 0.202, 0.290), "higher than Full by 0.246 (0.202 to 0.290)"),
        ((0.0, -0.081, 0.081), "not distinguishable from Full: -0.081 to +0.081"),
        ((0.01, 0.0, 0.03), "not distinguishable from Full: 0.000 to +0.030"),
        ((-0.01, -0.03, -0.0), "not distinguishable from Full: -0.030 to 0.000"),
        ((0.0, -0.00001, 0.00001), "not distinguishable from Full: -0.00001 to +0.00001"),
        ((math.nan, 0.0, 0.0), "not computed"),
        ((0.1, math.nan, math.nan), "not computed"),
    ],
)
def test_differences_in_words(numbers: tuple[float, float, float], words: str) -> None:
    assert describe_difference(*numbers) == words


def test_another_reference_is_named() -> None:
    assert describe_difference(0.1, 0.05, 0.15, reference="random@0.30").startswith("higher than random@0.30 by")


def test_noninferiority_needs_the_whole_interval() -> None:
    assert is_noninferior(-0.014, 0.020, 0.02, "higher")
    assert not is_noninferior(-0.025, 0.020, 0.02, "higher")
    assert is_noninferior(-0.05, 0.019, 0.02, "lower")
    assert not is_noninferior(-0.05, 0.02, 0.02, "lower")


def test_noninferiority_in_words() -> None:
    shown = describe_noninferiority(-0.014, 0.020, 0.02)
    assert shown == "not inferior to Full by more than 0.020: at worst 0.014"
    open_question = describe_noninferiority(-0.025, 0.020, 0.02)
    assert open_question == "non-inferiority to Full within 0.020 not shown: may be worse by 0.025"
    worse = describe_noninferiority(0.202, 0.290, 0.02, better="lower")
    assert worse == "inferior to Full by more than 0.020: at best 0.202"
    assert describe_noninferiority(math.nan, 0.0, 0.02) == "not computed"
    with pytest.raises(SightlineError, match="must be positive"):
        describe_noninferiority(-0.1, 0.1, 0.0)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.01, 0.015, "equal"),
        (-0.01, 0.03, "open"),
        (-0.5, 0.5, "open"),
        (0.021, 0.04, "different"),
        (-0.3, -0.1, "different"),
        (math.nan, math.nan, "open"),
    ],
)
def test_equality_is_shown_by_two_bounds_and_never_by_want_of_images(low: float, high: float, verdict: str) -> None:
    assert equivalence(low, high, 0.02) == verdict
    with pytest.raises(SightlineError, match="must be positive"):
        equivalence(low, high, 0.0)
