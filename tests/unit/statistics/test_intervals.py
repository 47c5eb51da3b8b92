"""The one rule of intervals: coverage by simulation, p-values that agree with it, correlations and kappa by it."""

import numpy as np
import pytest
from benchmarks.interval_coverage import DRAWS, Population, intervals, measure, paired, populations
from scipy.stats import binomtest

from sightline.statistics.agreement import kappa_interval
from sightline.statistics.bootstrap import difference_interval, paired_draws
from sightline.statistics.correlation import spearman_intervals
from sightline.statistics.intervals import interval, p_above, p_below, ratio_shares
from sightline.statistics.metrics import METRICS
from sightline.statistics.paired import ScoreDifferences, equally_weighted

ACCURACY = METRICS["accuracy"]


@pytest.mark.parametrize("images", [20, 50])
@pytest.mark.parametrize("population", [p for p in populations() if p.cheap], ids=lambda population: population.name)
def test_intervals_of_few_discordant_images_hold_the_truth_as_often_as_they_say(
    population: Population, images: int
) -> None:
    # 300 trials of a nominal 95 %: the smallest of the table is 97.5 %, and three standard errors of it are 2.7 %.
    assert measure(population, images, 300).covered >= 0.94


@pytest.mark.parametrize(("losses", "images"), [(2, 50), (15, 100), (60, 100)])
def test_a_p_value_says_what_the_interval_says(losses: int, images: int) -> None:
    values = -(np.arange(images) < losses).astype(float)
    shares = ratio_shares(values, np.ones(images), (-1.0, 1.0))
    counts = np.random.default_rng(5).multinomial(images, np.full(images, 1 / images), size=4000)
    draws = counts @ values / images
    found = interval(draws, shares)
    for away in (0.01, -0.01):
        assert (p_below(draws, shares, found.high + away) < 0.025) == (away > 0)
        assert (p_above(draws, shares, found.low + away) < 0.025) == (away < 0)


def test_the_simulation_of_coverage_takes_the_interval_that_the_tool_gives() -> None:
    arm, reference = paired(0.2, 0.1, 2)(np.random.default_rng(3), 60)
    assert reference is not None
    assert intervals((arm, reference), "accuracy")[0] == difference_interval(arm, reference, ACCURACY, draws=DRAWS)


def test_a_p_value_of_few_discordant_images_is_no_smaller_than_exact_ones() -> None:
    arm, reference = paired(0.0, 0.0, 1)(np.random.default_rng(0), 40)
    assert reference is not None
    left, right, drawn = paired_draws(arm, reference, ACCURACY, draws=500)
    assert p_above(drawn, left.shares(ACCURACY).minus(right.shares(ACCURACY))) == 1.0, (
        "no image speaks for a difference"
    )
    rate = ratio_shares(np.r_[np.ones(3), np.zeros(37)], np.ones(40), (0.0, 1.0))
    exact = binomtest(3, 40, 0.02, alternative="greater").pvalue
    assert p_above(np.full(10, 3 / 40), rate, 0.02) == pytest.approx(exact, abs=0.01)


def test_a_family_of_claims_about_nothing_is_right_as_often_as_it_says() -> None:
    """Two-sided losses of equal size at 60 images: a claim "the arm is better" at 5 % is false at most so often."""
    rng = np.random.default_rng(9)
    claimed = 0
    for _ in range(200):
        values = rng.choice([-1.0, 0.0, 1.0], p=[0.04, 0.92, 0.04], size=60)
        shares = ratio_shares(values, np.ones(60), (-1.0, 1.0))
        draws = rng.multinomial(60, np.full(60, 1 / 60), size=400) @ values / 60
        claimed += p_above(draws, shares) <= 0.05
    assert claimed <= 0.05 * 200


def test_a_perfect_correlation_of_few_values_is_not_certain() -> None:
    x = np.arange(30.0)
    outcomes = {"twice": 2 * x, "rare": np.r_[np.ones(3), np.zeros(27)], "constant": np.ones(30)}
    twice, rare, constant = spearman_intervals({"x": x}, outcomes, draws=200).values()
    assert twice.value == pytest.approx(1.0)
    assert (twice.kind, np.isnan(twice.low)) == ("none", True)
    assert rare.kind == "student"
    assert rare.low < -0.6, "three images bound next to nothing"
    assert (constant.kind, "does not vary" in constant.reason) == ("none", True)


def test_perfect_agreement_of_few_labels_is_not_certain() -> None:
    first = ["yes"] * 20 + ["no"] * 20
    found = kappa_interval(first, first, draws=200)
    assert (found.value, found.high, found.kind) == (1.0, 1.0, "unseen")
    assert 0.75 < found.low < 0.85
    alike = kappa_interval(["yes"] * 40, ["yes"] * 40, draws=200)
    assert alike.low < 0.1, "without a second label agreement says nothing about chance"


def test_no_change_of_scores_on_few_examples_is_not_certain() -> None:
    parts = [ScoreDifferences.of(np.zeros((count, 1)), draws=100) for count in (30, 60)]
    one, other, both = (part.estimate(0) for part in (*parts, equally_weighted(parts)))
    assert one.high == pytest.approx(1 - 0.025 ** (1 / 30), abs=1e-3)
    assert other.high < both.high < one.high
    assert both.low == pytest.approx(-both.high)
