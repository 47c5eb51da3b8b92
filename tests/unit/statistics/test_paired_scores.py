"""Paired scores over examples: the machinery against plain loops, and against the counts that the paper printed."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from sightline.errors import SightlineError
from sightline.statistics.bootstrap import SEED, count_blocks
from sightline.statistics.paired import WinLossTie
from sightline.statistics.paired_scores import EXAMPLE_DRAWS, ScoreDifferences, equally_weighted, sign_flip_p
from tests.unit.statistics.golden_rows import table

DRAWS = 500
PRINTED = ("n", "diff", "low", "high", "win", "loss", "tie")


def differences(n: int, columns: int = 2, seed: int = 0) -> np.ndarray:
    """(n, columns) differences of scores, many of them 0."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, columns)) < 0.5, 0.0, rng.uniform(-1.0, 1.0, (n, columns)))


def draws_of(found: ScoreDifferences) -> np.ndarray:
    assert found.draws is not None
    return found.draws


def test_an_interval_is_the_quantiles_of_means_over_resampled_examples() -> None:
    values = differences(150)
    found = ScoreDifferences.of(values, draws=DRAWS)
    means = [
        values[np.repeat(np.arange(150), counts.astype(int))].mean(axis=0)
        for counts in np.concatenate(list(count_blocks(150, DRAWS, SEED, "examples")))
    ]
    for column in (0, 1):
        estimate = found.estimate(column)
        assert estimate.value == pytest.approx(values[:, column].mean())
        assert (estimate.low, estimate.high) == pytest.approx(
            tuple(np.quantile([mean[column] for mean in means], [0.025, 0.975]))
        )
        assert estimate.valid_draws == DRAWS


def test_images_are_drawn_with_all_their_questions() -> None:
    values = np.repeat(differences(20, 1), 3, axis=0)
    images = np.repeat(np.arange(20), 3)
    alone, together = ScoreDifferences.of(values, draws=DRAWS), ScoreDifferences.of(values, images, draws=DRAWS)
    once = ScoreDifferences.of(values[::3], draws=DRAWS).estimate(0)
    assert (together.estimate(0).low, together.estimate(0).high) == pytest.approx((once.low, once.high))
    assert np.ptp(draws_of(together)) > 1.2 * np.ptp(draws_of(alone))


def test_a_seed_gives_the_same_draws_and_another_seed_others() -> None:
    values = differences(30)
    first, again, other = (draws_of(ScoreDifferences.of(values, draws=DRAWS, seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_usual_number_of_draws_is_the_protocols() -> None:
    assert EXAMPLE_DRAWS == 20_000
    assert ScoreDifferences.of(differences(10)).estimate(0).valid_draws == 20_000


def test_wins_losses_and_ties_count_examples() -> None:
    found = ScoreDifferences.of(np.array([[0.5], [-0.1], [0.0], [1e-14], [0.2]]), draws=DRAWS)
    assert found.tallies == (WinLossTie(2, 1, 2),)


def test_benchmarks_weigh_the_same_however_large_they_are() -> None:
    large, small = differences(200, seed=1), differences(10, seed=2)
    parts = [
        ScoreDifferences.of(values, draws=DRAWS, purpose=f"examples of {name}")
        for name, values in (("a", large), ("b", small))
    ]
    pooled = equally_weighted(parts)
    assert pooled.points == pytest.approx((large.mean(axis=0) + small.mean(axis=0)) / 2)
    assert pooled.n == 210
    assert pooled.tallies[0].tie == parts[0].tallies[0].tie + parts[1].tallies[0].tie
    # Draws of two benchmarks are independent, so variances add: the mean of two has a quarter of their sum.
    spread = [float(draws_of(part)[:, 0].var()) for part in parts]
    assert float(draws_of(pooled)[:, 0].var()) == pytest.approx(sum(spread) / 4, rel=0.25)


def test_benchmarks_of_one_size_are_not_resampled_alike() -> None:
    values = differences(50, 1)
    same = [draws_of(ScoreDifferences.of(values, draws=DRAWS, purpose=f"examples of {name}")) for name in "ab"]
    assert abs(np.corrcoef(same[0][:, 0], same[1][:, 0])[0, 1]) < 0.2


def test_one_example_has_a_difference_and_no_interval() -> None:
    found = ScoreDifferences.of(np.array([[0.4]]), draws=DRAWS).estimate(0)
    assert found.value == 0.4
    assert np.isnan([found.low, found.high]).all()
    assert "two examples" in found.reason


@pytest.mark.parametrize("broken", [np.zeros((0, 1)), np.array([[np.nan]]), np.zeros(3)])
def test_what_cannot_be_paired_is_refused(broken: np.ndarray) -> None:
    with pytest.raises(SightlineError, match="paired comparison needs"):
        ScoreDifferences.of(broken)


def test_sign_flips_approach_the_exact_test() -> None:
    change = np.array([0.9, 0.4, -0.1, 0.3, 0.7, 0.0, 0.5, -0.2])
    moved = change[change != 0.0]
    sums = [abs(float(np.dot(signs, moved))) for signs in itertools.product((-1.0, 1.0), repeat=len(moved))]
    exact = float(np.mean(np.array(sums) >= abs(moved.sum()) - 1e-12))
    assert sign_flip_p(change) == pytest.approx(exact, abs=0.01)


def test_without_a_difference_nothing_is_found_and_a_large_one_is_sure() -> None:
    assert sign_flip_p([0.0, 0.0]) == 1.0
    assert sign_flip_p(np.full(60, 0.3), draws=999) == 1 / 1000


@pytest.fixture(scope="module")
def evidence(data: Path) -> Path:
    return data / "protocol" / "paper_evidence"


def published(evidence: Path) -> list[dict[str, float]]:
    """n, difference, interval and tally of every printed comparison of open answers."""
    found = []
    for name, difference, tally in (
        ("runs", "paired_delta", ("wins", "losses", "ties")),
        ("matched_comparisons", "paired_delta", ("wins", "losses", "ties")),
        ("recovery", "paired_recovery", ("improved", "degraded", "tied")),
    ):
        for row in table(evidence / f"full_open_ocr_qa_{name}.csv"):
            keys = ("n", difference, "ci_low", "ci_high", *tally)
            found.append(dict(zip(PRINTED, (float(row[key]) for key in keys), strict=True)))
    for name in ("docvqa_30", "docvqa_50", "textvqa_30"):
        focus = json.loads((evidence / f"focus_{name}_pairwise.json").read_text())
        values = (focus["n"], focus["mean_paired_difference"], *focus["bootstrap_95_ci"])
        found.append(dict(zip(PRINTED, (*values, focus["wins"], focus["losses"], focus["ties"]), strict=True)))
    return found


def test_published_tallies_add_up_and_differences_lie_in_their_intervals(evidence: Path) -> None:
    rows = published(evidence)
    assert len(rows) == 16 + 8 + 4 + 3
    for row in rows:
        assert row["win"] + row["loss"] + row["tie"] == row["n"]
        assert row["low"] < row["diff"] < row["high"]
        assert -row["loss"] / row["n"] <= row["diff"] <= row["win"] / row["n"]


def test_published_differences_are_those_of_the_published_scores(evidence: Path) -> None:
    runs = {(r["model"], r["task"], r["method"], r["budget"]): r for r in table(evidence / "full_open_ocr_qa_runs.csv")}
    for row in runs.values():
        assert float(row["paired_delta"]) == pytest.approx(float(row["pruned_score"]) - float(row["full_score"]))
    for row in table(evidence / "full_open_ocr_qa_matched_comparisons.csv"):
        scores = [
            float(runs[row["model"], row["task"], name, row["budget"]]["pruned_score"])
            for name in row["comparison"].split(" minus ")
        ]
        assert float(row["paired_delta"]) == pytest.approx(scores[0] - scores[1])
    for row in table(evidence / "full_open_ocr_qa_recovery.csv"):
        method = "Target-Grid" if row["model"].startswith("Qwen") else "Target"
        scores = [
            float(runs[row["model"], row["task"], method, budget]["pruned_score"])
            for budget in row["comparison"].split(" minus ")
        ]
        assert float(row["paired_recovery"]) == pytest.approx(scores[0] - scores[1])


def test_our_intervals_bound_the_published_ones_between_what_their_counts_allow(evidence: Path) -> None:
    """No per-question scores are published. Given win, loss and tie, an interval is widest where every change is 1 and
    narrowest where all wins are alike and all losses are, so far apart that the printed difference comes out."""
    for row in published(evidence):
        n, win, loss = int(row["n"]), int(row["win"]), int(row["loss"])
        widest = np.concatenate([np.ones(win), -np.ones(loss), np.zeros(n - win - loss)])
        # The least variance: one side as close to 0 as the difference allows.
        steady = np.zeros(n)
        steady[:win] = max(0.0, row["diff"]) * n / win
        steady[win : win + loss] = min(0.0, row["diff"]) * n / loss
        found = ScoreDifferences.of(np.stack([widest, steady], axis=1), draws=600)
        wide, narrow = (found.estimate(column) for column in (0, 1))
        width = row["high"] - row["low"]
        assert 0.95 * (narrow.high - narrow.low) <= width <= 1.05 * (wide.high - wide.low)
