"""Two arms on the same probes: tests, intervals in words, scores, how many images are needed."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from sightline.analysis.comparison import clustered_mean
from sightline.statistics import paired
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.bootstrap import SEED, count_blocks, difference_interval, replicate
from sightline.statistics.intervals import percentile_interval, wilson
from sightline.statistics.metrics import METRICS
from tests.unit.statistics.golden_rows import table

DRAWS = 500


@given(st.integers(0, 200), st.integers(0, 200))
def test_mcnemar_is_the_exact_binomial_test_of_the_discordant_probes(b: int, c: int) -> None:
    expected = 1.0 if b + c == 0 else binomtest(b, b + c, 0.5).pvalue
    assert paired.mcnemar_p(b, c) == pytest.approx(expected, rel=1e-9)
    assert paired.mcnemar_p(b, c) == paired.mcnemar_p(c, b)


def test_counts_of_two_arms_by_hand() -> None:
    found = paired.mcnemar([1, 1, 1, 0, 0], [1, 0, 0, 1, 0])
    assert (found.first_only, found.second_only, found.p) == (2, 1, 1.0)
    changes = [0.5, -0.5, 5e-13, -5e-13, math.nan, 0.0, 1.0]
    assert paired.win_loss_tie(changes) == paired.WinLossTie(2, 1, 3)
    assert paired.win_loss_tie(changes, higher_is_better=False) == paired.WinLossTie(1, 2, 3)
    assert percentile_interval(np.append(np.arange(101.0), np.nan)) == pytest.approx((2.5, 97.5))
    assert all(math.isnan(bound) for bound in percentile_interval(np.array([np.nan])))
    assert paired.holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert (paired.holm([0.5, 0.9]), paired.holm([])) == ([1.0, 1.0], [])


@given(st.integers(1, 500), st.data())
def test_wilson_is_scipys_mirrors_and_contains_the_share(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    low, high = wilson(k, n)
    other = wilson(n - k, n)
    assert (low, high) == pytest.approx((1 - other[1], 1 - other[0]), abs=1e-12)
    assert 0.0 <= low <= k / n <= high <= 1.0
    assert (wilson(0, n)[0], wilson(n, n)[1], *map(math.isnan, wilson(0, 0))) == (0.0, 1.0, True, True)
    assert (low, high) == pytest.approx(tuple(binomtest(k, n).proportion_ci(method="wilson")), abs=1e-12)


# Paired scores over examples: the machinery against plain loops, and against the counts that the paper printed.


def differences(n: int, columns: int = 2, seed: int = 0) -> np.ndarray:
    """(n, columns) differences of scores, many of them 0."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, columns)) < 0.5, 0.0, rng.uniform(-1.0, 1.0, (n, columns)))


def draws_of(found: paired.ScoreDifferences) -> np.ndarray:
    assert found.draws is not None
    return found.draws[:, 0]


def test_an_interval_is_the_quantiles_of_means_over_resampled_examples() -> None:
    values = differences(150)
    found = paired.ScoreDifferences.of(values, draws=DRAWS)
    blocks = np.concatenate(list(count_blocks(150, DRAWS, SEED, "examples"))).astype(int)
    means = np.array([values[np.repeat(np.arange(150), counts)].mean(axis=0) for counts in blocks])
    for column in (0, 1):
        estimate = found.estimate(column)
        assert estimate.value == pytest.approx(values[:, column].mean())
        assert (estimate.low, estimate.high) == pytest.approx(tuple(np.quantile(means[:, column], [0.025, 0.975])))
        assert estimate.valid_draws == DRAWS


def test_images_are_resampled_with_all_their_examples() -> None:
    values, images = np.repeat(differences(20, 1), 3, axis=0), np.repeat(np.arange(20), 3)
    alone, together = (paired.ScoreDifferences.of(values, by, draws=DRAWS) for by in (None, images))
    once, whole = paired.ScoreDifferences.of(values[::3], draws=DRAWS).estimate(0), together.estimate(0)
    assert (whole.low, whole.high) == pytest.approx((once.low, once.high))
    assert np.ptp(draws_of(together)) > 1.2 * np.ptp(draws_of(alone))


def test_draws_follow_seed_and_purpose() -> None:
    values = differences(50, 1)
    first, again, other, b = (
        draws_of(paired.ScoreDifferences.of(values, draws=DRAWS, seed=seed, purpose=f"examples of {name}"))
        for seed, name in ((1, "a"), (1, "a"), (2, "a"), (1, "b"))
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert abs(np.corrcoef(first, b)[0, 1]) < 0.2, "benchmarks of one size are not resampled alike"
    assert paired.ScoreDifferences.of(differences(10)).estimate(0).valid_draws == paired.EXAMPLE_DRAWS == 20_000


def test_benchmarks_weigh_the_same_however_large_they_are() -> None:
    benchmarks = {"a": differences(200, seed=1), "b": differences(10, seed=2)}
    parts = [paired.ScoreDifferences.of(v, draws=DRAWS, purpose=f"examples of {n}") for n, v in benchmarks.items()]
    pooled = paired.equally_weighted(parts)
    assert pooled.points == pytest.approx(sum(values.mean(axis=0) for values in benchmarks.values()) / 2)
    assert pooled.n == 210
    assert pooled.tallies[0].tie == sum(part.tallies[0].tie for part in parts)
    # Draws of two benchmarks are independent, so variances add: the mean of two has a quarter of their sum.
    spread = sum(float(draws_of(part).var()) for part in parts)
    assert float(draws_of(pooled).var()) == pytest.approx(spread / 4, rel=0.25)


def test_changes_of_scores_are_counted_and_one_example_has_no_interval() -> None:
    found = paired.ScoreDifferences.of(np.array([[0.5], [-0.1], [0.0], [1e-14], [0.2]]), draws=DRAWS)
    assert found.tallies == (paired.WinLossTie(2, 1, 2),)
    one = paired.ScoreDifferences.of(np.array([[0.4]]), draws=DRAWS).estimate(0)
    assert (one.value, np.isnan([one.low, one.high]).all(), "two examples" in one.reason) == (0.4, True, True)


def test_sign_flips_approach_the_exact_test() -> None:
    change = np.array([0.9, 0.4, -0.1, 0.3, 0.7, 0.0, 0.5, -0.2])
    moved = change[change != 0.0]
    sums = [abs(float(np.dot(signs, moved))) for signs in itertools.product((-1.0, 1.0), repeat=len(moved))]
    exact = float(np.mean(np.array(sums) >= abs(moved.sum()) - 1e-12))
    assert paired.sign_flip_p(change) == pytest.approx(exact, abs=0.01)
    assert paired.sign_flip_p([0.0, 0.0]) == 1.0
    assert paired.sign_flip_p(np.full(60, 0.3), draws=999) == 1 / 1000


def test_our_intervals_bound_the_published_ones_between_what_their_counts_allow(data: Path) -> None:
    """No per-question scores are published. Given win, loss and tie, an interval is widest where every change is 1 and
    narrowest where all wins are alike and all losses are, so far apart that the printed difference comes out."""
    evidence, published = data / "protocol/paper_evidence", []
    for name, keys in (
        ("runs", ("n", "paired_delta", "ci_low", "ci_high", "wins", "losses")),
        ("matched_comparisons", ("n", "paired_delta", "ci_low", "ci_high", "wins", "losses")),
        ("recovery", ("n", "paired_recovery", "ci_low", "ci_high", "improved", "degraded")),
    ):
        rows = table(evidence / f"full_open_ocr_qa_{name}.csv")
        published += [[float(row[key]) for key in keys] for row in rows]
    for name in ("docvqa_30", "docvqa_50", "textvqa_30"):
        focus = json.loads((evidence / f"focus_{name}_pairwise.json").read_text())
        bounds = focus["bootstrap_95_ci"]
        published.append([focus["n"], focus["mean_paired_difference"], *bounds, focus["wins"], focus["losses"]])
    for count, difference, low, high, *moved in published:
        n, win, loss = map(int, (count, *moved))
        widest = np.concatenate([np.ones(win), -np.ones(loss), np.zeros(n - win - loss)])
        # The least variance: one side as close to 0 as the difference allows.
        steady = np.zeros(n)
        steady[:win] = max(0.0, difference) * n / win
        steady[win : win + loss] = min(0.0, difference) * n / loss
        found = paired.ScoreDifferences.of(np.stack([widest, steady], axis=1), draws=600)
        wide, narrow = (found.estimate(column) for column in (0, 1))
        assert 0.95 * (narrow.high - narrow.low) <= high - low <= 1.05 * (wide.high - wide.low)


def test_the_named_number_of_images_has_the_named_power_in_simulated_studies() -> None:
    """Counts how often the bootstrap interval of a simulated study around a true difference excludes 0."""
    rng = np.random.default_rng(1)
    pilot = rng.choice([-0.5, 0.0, 0.5], size=1000, p=[0.15, 0.6, 0.25])
    shift = 0.08
    images = paired.images_needed(pilot, shift)
    assert paired.images_needed(np.zeros(10), 0.01) == 2, "without spread any difference shows"
    assert paired.images_needed(pilot, -shift) == images < paired.images_needed(pilot, shift / 2)
    centred = pilot - pilot.mean()
    found, studies = 0, 1000
    for _ in range(studies):
        study = rng.choice(centred, size=images) + shift
        interval = clustered_mean(study, np.arange(images), draws=500)
        found += not interval.low <= 0.0 <= interval.high
    # A share of 1000 studies around p = 0.8 has the standard error sqrt(p (1 - p) / 1000) = 0.0126; 3 are allowed.
    assert found / studies == pytest.approx(paired.POWER, abs=3 * np.sqrt(paired.POWER * (1 - paired.POWER) / studies))


@pytest.mark.parametrize("name", ["accuracy", "hfpr", "pos_ecr", "pn_average", "auroc"])
def test_image_differences_have_the_variance_of_the_paired_bootstrap(name: str) -> None:
    rng = np.random.default_rng(2)
    ids = np.repeat(np.arange(120), rng.integers(1, 4, 120))
    labels = rng.random(len(ids)) < 0.5
    base = rng.normal(size=len(ids)) + labels
    arms = [ArmRows.of(labels, base + 0.5 * rng.normal(size=len(ids)), ids, ecr=rng.random(len(ids))) for _ in range(2)]
    metric = METRICS[name]
    shares = paired.image_differences(arms[0], arms[1], metric)
    draws = np.subtract(*(replicate(arm, [metric], draws=4000)[:, 0] for arm in arms))
    # The standard deviation of 4000 draws has the relative error 1 / sqrt(2 * 4000) = 0.011, 3 of which are 0.034; the
    # jackknife adds its bias, of the order of 1 / 120 images for a ratio and of a few of those for AUROC.
    assert shares.std(ddof=1) / np.sqrt(len(shares)) == pytest.approx(draws.std(), rel=0.034 + 4 / 120)
    assert shares.mean() == pytest.approx(difference_interval(arms[0], arms[1], metric, draws=10).value, abs=0.01)


def test_differences_in_words_which_call_equal_or_not_inferior_only_what_the_whole_interval_shows() -> None:
    for name, cases in yaml.safe_load(Path(__file__).with_name("interval_words.yaml").read_text()).items():
        for *arguments, words in cases:
            assert getattr(paired, name)(*arguments) == words, arguments
