"""Resampled images, and arms drawn at random."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import numpy as np
import pytest
from scipy.stats import binomtest

from sightline.analysis.comparison import clustered_mean
from sightline.gate.decisions import gate_runs
from sightline.report.build import build_report
from sightline.report.compare import compare_runs
from sightline.statistics import bootstrap
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.bootstrap import (
    SEED,
    ImageSums,
    OneThread,
    count_blocks,
    difference_interval,
    generator,
    metric_interval,
    replicate,
)
from sightline.statistics.intervals import percentile_interval
from sightline.statistics.metrics import METRICS, point
from sightline.statistics.paired import two_stage_difference, two_stage_differences, two_stage_draws
from sightline_leaderboard.standings import standings

NAMES = ("accuracy", "hfpr", "pos_ecr", "pn_average", "weakly_supported", "auroc", "ece", "brier")
METRICS_DRAWN = [METRICS[name] for name in NAMES]
ACCURACY, AUROC, POS_ECR = (METRICS[name] for name in ("accuracy", "auroc", "pos_ecr"))


def uneven_rows(seed: int, images: int = 40) -> ArmRows:
    """Images with one to four probes of either label, tied margins included."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(images), np.random.default_rng(0).integers(1, 5, images))
    labels = np.random.default_rng(1).random(len(ids)) < 0.5
    margins = np.round(rng.normal(size=len(ids)) + labels, 1)
    return ArmRows.of(labels, margins, [f"image{i:03d}" for i in ids], ecr=rng.random(len(ids)))


def part(rows: ArmRows, index: np.ndarray, *, images: bool = True) -> ArmRows:
    """The probes at these places; without ``images`` each is its own."""
    assert rows.margins is not None
    ids = rows.image_ids[rows.image_index][index] if images else None
    return ArmRows.of(rows.labels[index], rows.margins[index], ids, ecr=rows.columns["ecr"][index])


def test_a_draw_equals_the_metric_of_the_repeated_rows() -> None:
    rows = uneven_rows(3)
    counts = next(count_blocks(rows.n_images, 12, seed=5))
    spelled_out = [np.repeat(np.arange(len(rows.labels)), row.astype(int)[rows.image_index]) for row in counts]
    repeated = [part(rows, index, images=False) for index in spelled_out]
    expected = [[point(metric, each) for metric in METRICS_DRAWN] for each in repeated]
    np.testing.assert_allclose(ImageSums.of(rows, METRICS_DRAWN).at(counts), expected, rtol=0, atol=1e-12)


def test_neither_the_order_of_rows_nor_other_metrics_nor_other_arms_move_a_draw() -> None:
    rows = uneven_rows(3)
    shuffled = part(rows, np.random.default_rng(2).permutation(len(rows.labels)))
    drawn = replicate(rows, METRICS_DRAWN, draws=50)
    np.testing.assert_allclose(drawn, replicate(shuffled, METRICS_DRAWN, draws=50), rtol=0, atol=1e-12)
    np.testing.assert_allclose(drawn[:, 2], replicate(rows, [POS_ECR], draws=50)[:, 0], atol=1e-15)
    arms = [uneven_rows(seed, images) for images, seed in ((12, 1), (12, 2), (9, 3))]
    together = bootstrap.replicate_all([ImageSums.of(arm, METRICS_DRAWN) for arm in arms], draws=60)
    for arm, found in zip(arms, together, strict=True):
        np.testing.assert_array_equal(found, replicate(arm, METRICS_DRAWN, draws=60))


def test_counts_are_pinned_and_do_not_depend_on_the_block_size() -> None:
    """A change of generator, seeding or order would silently move every published interval."""
    assert next(count_blocks(6, 2, seed=17)).tolist() == [[0, 4, 0, 0, 0, 2], [0, 1, 2, 1, 1, 1]]
    whole = np.concatenate(list(count_blocks(30, 500, seed=9)))
    np.testing.assert_array_equal(whole, np.concatenate(list(count_blocks(30, 500, seed=9, block=7))))
    np.testing.assert_array_equal(whole[:100], np.concatenate(list(count_blocks(30, 100, seed=9))))


def test_counts_are_resamples_in_which_every_image_has_the_same_share() -> None:
    images, draws = 30, 20_000
    counts = np.concatenate(list(count_blocks(images, draws, seed=9)))
    assert counts.shape == (draws, images)
    assert (counts.sum(axis=1) == images).all()
    variance = 1 - 1 / images
    # Each image's mean over the draws is 1 with the standard error sqrt(variance / draws) = 0.007; the largest of 30
    # deviations stays below 4 of those with probability 0.998, and the seed is fixed.
    assert counts.mean(axis=0) == pytest.approx(np.ones(images), abs=4 * np.sqrt(variance / draws))
    # (count - 1)^2 has variance 3 for a Poisson count, so over images x draws its mean is good to sqrt(3 / 600000).
    assert counts.var() == pytest.approx(variance, abs=4 * np.sqrt(3 / (images * draws)))


def test_draws_follow_their_seed_and_what_they_are_for() -> None:
    first, again, *others = (
        generator(seed, purpose).integers(0, 1 << 30, 8).tolist()
        for seed, purpose in ((1, "images"), (1, "images"), (2, "images"), (1, "seeds"))
    )
    assert first == again
    assert first not in others


@pytest.mark.parametrize("name", NAMES)
def test_a_difference_with_itself_is_exactly_nothing(name: str) -> None:
    rows = uneven_rows(6)
    found = difference_interval(rows, rows, METRICS[name], draws=50)
    assert (found.value, found.kind) == (0.0, "certain")
    assert math.isnan(found.low), "what holds by construction has no interval"


def test_pairing_cancels_what_two_arms_share() -> None:
    rows = uneven_rows(6)
    better = replace(rows, columns={"ecr": rows.columns["ecr"] + 0.125})
    _, _, drawn = bootstrap.paired_draws(better, rows, POS_ECR, draws=100)
    np.testing.assert_allclose(drawn, 0.125, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "truth", "trials", "least"), [("accuracy", 0.5, 200, 0.90), ("auroc", 0.7602499389065233, 150, 0.89)]
)
def test_intervals_cover_the_truth_about_as_often_as_they_say(
    name: str, truth: float, trials: int, least: float
) -> None:
    """Two probes per image, which share a random effect in what is right (an interval that ignored clusters would cover
    83 %); AUROC's truth is Phi(1 / sqrt 2), of normals one standard deviation apart."""
    covered = 0
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        labels = np.tile([True, name == "accuracy"], 60)
        shift, spread = (np.repeat(rng.normal(size=60), 2), 0.1) if name == "accuracy" else (labels, 1.0)
        rows = ArmRows.of(labels, shift + spread * rng.normal(size=120), np.repeat(np.arange(60), 2))
        found = metric_interval(rows, METRICS[name], draws=400, seed=trial)
        covered += found.low <= truth <= found.high
    # 95 % with the standard error sqrt(0.95 * 0.05 / trials), 0.015 and 0.018: three below, and not always.
    assert least <= covered / trials <= 0.99


def test_draws_without_any_probe_concerned_are_left_out_and_counted() -> None:
    rows = ArmRows.of([False, True, True, True], [1.0, 1.0, -1.0, 1.0], ["a", "b", "c", "d"])
    found = metric_interval(rows, METRICS["hfpr"], draws=1000)
    assert (found.value, found.high, found.kind) == (1.0, 1.0, "unseen")
    assert found.low == pytest.approx(0.025, abs=1e-3), "one image bounds next to nothing"
    assert 500 < found.valid_draws < 1000  # about 1 - (3/4)^4 = 0.68 of the draws hold image a


AWAY = 0.5 * (1 - 0.025 ** (1 / 40))  # an unseen image moves a half to 0 or to 1
ONES = np.ones(30)
READ = ArmRows.of(ONES, ONES, np.arange(30), legibility=12 * ONES, ecr=ONES)
KEPT = replace(READ, columns={**READ.columns, "keep": ONES})


@pytest.mark.parametrize(
    ("name", "rows", "ends", "kind"),
    [
        # Percentiles would say 0 to 0 for 0 of 2 as for 0 of 40, and 0.5 to 0.5 where every image is half right.
        ("hfpr", ArmRows.of([False] * 4, [-1.0] * 4, ["a", "a", "b", "b"]), (0.0, 1 - 0.025 ** (1 / 2)), "unseen"),
        ("accuracy", ArmRows.of([True, False] * 40, [1.0] * 80, np.repeat(np.arange(40), 2)), (0.5 - AWAY, 0.5 + AWAY),
         "unseen"),
        # What does not vary leaves room for another value, unless it holds by construction or has no limits.
        ("pos_ecr", READ, (0.025 ** (1 / 30), 1.0), "unseen"),
        ("pos_ecr", KEPT, (math.nan, math.nan), "certain"),
        ("legibility", READ, (math.nan, math.nan), "none"),
    ],
    ids=["none of two", "every image half right", "all covered", "by construction", "without limits"],
)  # fmt: skip
def test_a_share_that_resampling_cannot_vary_has_an_interval_all_the_same(
    name: str, rows: ArmRows, ends: tuple[float, float], kind: str
) -> None:
    found = metric_interval(rows, METRICS[name], draws=200)
    assert (found.low, found.high) == pytest.approx(ends, abs=1e-3, nan_ok=True)
    assert (found.value, found.kind) == (point(METRICS[name], rows), kind)
    assert ("0 of 30 images differ" in found.reason) == (kind == "none")


def test_what_was_cropped_is_measured_and_values_without_limits_have_an_interval_by_student() -> None:
    cropped = replace(KEPT, columns={**KEPT.columns, "ecr": np.r_[0.4, np.ones(29)]})
    assert metric_interval(cropped, POS_ECR, draws=50).kind == "unseen"
    several = replace(READ, columns={"legibility": np.r_[np.full(26, 12.0), 3.0, 4.0, 5.0, 3.0]})
    found = metric_interval(several, METRICS["legibility"], draws=50)
    assert found.kind == "student"
    assert found.low < found.value - 1.0


@pytest.mark.parametrize(
    ("differ", "kind"), [(9, "unseen"), (10, "percentile"), (30, "percentile"), (40, "percentile")]
)
def test_how_many_images_differ_decides_how_an_interval_is_made(differ: int, kind: str) -> None:
    """However many probes they have: of 100 images, some are right in all of 20 probes, the others in none."""
    right = np.arange(100 * 20) < differ * 20
    rows = ArmRows.of(np.ones(100 * 20), np.where(right, 1.0, -1.0), np.repeat(np.arange(100), 20))
    found = metric_interval(rows, ACCURACY, draws=2000)
    assert found.kind == kind
    exact = binomtest(differ, 100).proportion_ci(method="exact")
    plain = percentile_interval(replicate(rows, [ACCURACY], draws=2000)[:, 0])
    if kind == "unseen":
        assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=0.005)
    elif differ < 40:
        assert found.high - found.low > plain[1] - plain[0]
    else:
        assert (found.low, found.high) == plain


@pytest.mark.parametrize("ties", [False, True])
def test_pseudo_values_are_those_of_every_image_left_out(ties: bool) -> None:
    rng = np.random.default_rng(9)
    margins = rng.normal(size=60)
    labels, images = rng.random(60) < 0.4, rng.integers(0, 12, 60)
    rows = ArmRows.of(labels, margins.round() if ties else margins, images, ecr=rng.random(60))
    sums = ImageSums.of(rows, [ACCURACY, POS_ECR, AUROC])
    left_out = np.concatenate([sums.at(1.0 - (np.arange(12) == image)[None]) for image in range(12)])
    np.testing.assert_allclose(sums.pseudo_values(), 12 * sums.point - 11 * left_out, atol=1e-12)
    rows = ArmRows.of([True, True, False, False], [1.0, 2.0, 0.0, 3.0], [0, 0, 1, 2])
    without = ImageSums.of(rows, [AUROC]).pseudo_values()[:, 0]
    assert np.isnan(without).tolist() == [True, False, False]


def test_the_interval_of_a_mean_agrees_with_normal_theory() -> None:
    values = np.random.default_rng(4).normal(size=400)
    found = clustered_mean(values, np.arange(400), draws=10_000)
    error = values.std() / 20
    expected = (values.mean() - 1.96 * error, values.mean() + 1.96 * error)
    # The 2.5 % quantile of 10,000 normal draws is good to 2.67 / sqrt(10000) of their standard deviation, here 0.0013.
    assert (found.low, found.high) == pytest.approx(expected, abs=4 * 0.0267 * error)


def test_auroc_of_large_arms_has_fewer_draws_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [bootstrap.ranked_draws(rows, 10_000) for rows in (200_000, 400_000, 10**9)] == [10_000, 5_000, 1_000]
    assert bootstrap.ranked_draws(10**9, 300) == 300
    rows, metrics = uneven_rows(4), [ACCURACY, AUROC]
    whole = replicate(rows, metrics, draws=100)
    assert bootstrap.ranked_words(len(rows.labels), 100) == ""
    monkeypatch.setattr(bootstrap, "FEWEST_RANKED", 30)
    monkeypatch.setattr(bootstrap, "RANKED_ROWS", 1)
    fewer = replicate(rows, metrics, draws=100)
    np.testing.assert_array_equal(fewer[:, 0], whole[:, 0])
    np.testing.assert_array_equal(fewer[:30, 1], whole[:30, 1])
    assert np.isnan(fewer[30:, 1]).all()
    monkeypatch.setattr(bootstrap, "_BLOCK_CELLS", 20 * rows.n_images)
    np.testing.assert_array_equal(replicate(rows, metrics, draws=100), fewer, "however many draws are made at once")
    assert metric_interval(rows, AUROC, draws=100).valid_draws == 30
    assert "first 30 of 100 draws" in bootstrap.ranked_words(len(rows.labels), 100)


def arm(ecr: np.ndarray) -> ArmRows:
    return ArmRows.of(np.ones(len(ecr), dtype=bool), np.ones(len(ecr)), np.arange(len(ecr)), ecr=ecr)


def test_seeds_that_are_alike_leave_image_uncertainty_and_those_that_differ_widen_it() -> None:
    rng = np.random.default_rng(0)
    left, right = arm(rng.random(80)), arm(rng.random(80))
    found = two_stage_difference(left, [right] * 3, POS_ECR, draws=2000)
    expected = difference_interval(left, right, POS_ECR, draws=2000)
    assert [found.value, found.low, found.high] == pytest.approx([expected.value, expected.low, expected.high])
    same = np.full(80, 0.5)
    apart = two_stage_difference(left, [arm(same + s) for s in (-0.3, 0.0, 0.3)], POS_ECR, draws=2000)
    together = two_stage_difference(left, [arm(same)] * 3, POS_ECR, draws=2000)
    assert apart.value == pytest.approx(together.value)
    assert apart.high - apart.low > 1.5 * (together.high - together.low)


def test_two_stage_draws_are_the_mean_of_the_drawn_seeds_on_the_drawn_images() -> None:
    """Spelled out: per draw a submatrix of seeds x images, with repetition, and its mean."""
    rng = np.random.default_rng(2)
    target, masks, draws = rng.random(30), rng.random((4, 30)), 400
    arms, seeded = {"a": arm(target), "b": arm(rng.random(30))}, [arm(mask) for mask in masks]
    found = two_stage_difference(arms["a"], seeded, POS_ECR, draws=draws)
    ours = two_stage_draws({"a": arms["a"]}, seeded, [POS_ECR], draws=draws, seed=SEED)["a"]
    seeds = np.concatenate(list(count_blocks(4, draws, SEED, purpose="seeds"))).astype(int)
    images = np.concatenate(list(count_blocks(30, draws, SEED))).astype(int)
    differences = []
    for chosen_seeds, chosen_images in zip(seeds, images, strict=True):
        drawn = np.repeat(np.arange(30), chosen_images)
        several = masks[np.repeat(np.arange(4), chosen_seeds)][:, drawn]
        differences.append(target[drawn].mean() - several.mean())
    assert found.value == pytest.approx(target.mean() - masks.mean())
    np.testing.assert_allclose(ours[:, 0], differences, atol=1e-12)
    assert found.low < np.quantile(differences, 0.025)
    assert found.high > np.quantile(differences, 0.975), "30 images: wider than the percentiles"
    together = two_stage_differences(arms, seeded, [ACCURACY, POS_ECR, METRICS["hfpr"]], draws=draws)
    assert len(together) == 6
    for (name, metric), estimate in together.items():
        if metric == "hfpr":
            assert ("there are no negatives" in estimate.reason, math.isnan(estimate.value)) == (True, True)
        else:
            assert estimate == two_stage_difference(arms[name], seeded, METRICS[metric], draws=draws)


def test_products_are_made_on_one_thread_within_and_on_as_many_as_before_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = bootstrap._openblas()
    if known is None:
        pytest.skip("NumPy multiplies by something else than OpenBLAS here")
    put, told = known
    met, usual = Barrier(2), told()

    @OneThread()
    def nested() -> int:
        with OneThread():
            pass
        return int(told())

    def stay() -> int:
        with OneThread():
            met.wait()
            return int(told())

    put(2)
    assert nested() == 1
    with ThreadPoolExecutor(2) as pool:
        assert {future.result() for future in [pool.submit(stay), pool.submit(stay)]} == {1}
    assert told() == 2
    monkeypatch.setattr(bootstrap, "_openblas", lambda: None)
    with OneThread():
        assert told() == 2, "another library multiplies, and nothing is changed"
    put(usual)


@pytest.mark.parametrize("made", [build_report, compare_runs, gate_runs, standings])
def test_what_resamples_is_made_on_one_thread(made: object) -> None:
    assert hasattr(made, "__wrapped__")
