"""Resampled images, and arms drawn at random."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from sightline.analysis.comparison import clustered_mean
from sightline.statistics import bootstrap
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.bootstrap import (
    SEED,
    ImageSums,
    count_blocks,
    difference_interval,
    generator,
    metric_interval,
    paired_draws,
    ranked_draws,
    ranked_words,
    replicate,
    replicate_all,
)
from sightline.statistics.intervals import percentile_interval
from sightline.statistics.metrics import METRICS, point
from sightline.statistics.paired import two_stage_difference, two_stage_differences, two_stage_draws


def uneven_rows(seed: int, images: int = 40) -> ArmRows:
    """Images with one to four probes of either label, tied margins included."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(images), np.random.default_rng(0).integers(1, 5, images))
    labels = np.random.default_rng(1).random(len(ids)) < 0.5
    return ArmRows.of(
        labels,
        np.round(rng.normal(size=len(ids)) + labels, 1),
        [f"image{i:03d}" for i in ids],
        ecr=rng.random(len(ids)),
    )


NAMES = ("accuracy", "hfpr", "pos_ecr", "pn_average", "weakly_supported", "auroc", "ece", "brier")


def repeated(rows: ArmRows, counts: np.ndarray) -> ArmRows:
    """The resample spelled out: every probe of an image repeated as often as the image was drawn."""
    index = np.repeat(np.arange(len(rows.labels)), counts.astype(int)[rows.image_index])
    assert rows.margins is not None
    return ArmRows.of(rows.labels[index], rows.margins[index], ecr=rows.columns["ecr"][index])


def test_a_draw_equals_the_metric_of_the_repeated_rows() -> None:
    rows = uneven_rows(3)
    metrics = [METRICS[name] for name in NAMES]
    counts = next(count_blocks(rows.n_images, 12, seed=5))
    found = ImageSums.of(rows, metrics).at(counts)
    expected = [[point(metric, repeated(rows, row)) for metric in metrics] for row in counts]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_counts_are_resamples_of_equal_shares_that_are_pinned_and_do_not_depend_on_the_block_size() -> None:
    """A change of generator, seeding or order would silently move every published interval."""
    assert next(count_blocks(6, 2, seed=17)).tolist() == [[0, 4, 0, 0, 0, 2], [0, 1, 2, 1, 1, 1]]
    whole = np.concatenate(list(count_blocks(30, 500, seed=9)))
    assert whole.shape == (500, 30)
    assert (whole.sum(axis=1) == 30).all()
    np.testing.assert_array_equal(whole, np.concatenate(list(count_blocks(30, 500, seed=9, block=7))))
    np.testing.assert_array_equal(whole[:100], np.concatenate(list(count_blocks(30, 100, seed=9))))
    images, draws = 30, 20_000
    counts = np.concatenate(list(count_blocks(images, draws, seed=9)))
    variance = 1 - 1 / images
    # Each image's mean over the draws is 1 with the standard error sqrt(variance / draws) = 0.007; the largest of 30
    # deviations stays below 4 of those with probability 0.998, and the seed is fixed.
    assert counts.mean(axis=0) == pytest.approx(np.ones(images), abs=4 * np.sqrt(variance / draws))
    # (count - 1)^2 has variance 3 for a Poisson count, so over images x draws its mean is good to sqrt(3 / 600000).
    assert counts.var() == pytest.approx(variance, abs=4 * np.sqrt(3 / (images * draws)))
    first = generator(1, "images").integers(0, 1 << 30, 8)
    assert np.array_equal(first, generator(1, "images").integers(0, 1 << 30, 8))
    assert not np.array_equal(first, generator(2, "images").integers(0, 1 << 30, 8))
    assert not np.array_equal(first, generator(1, "seeds").integers(0, 1 << 30, 8))


def test_row_order_and_other_metrics_do_not_move_a_draw() -> None:
    rows, metrics = uneven_rows(4), [METRICS[name] for name in NAMES]
    assert rows.margins is not None
    order = np.random.default_rng(2).permutation(len(rows.labels))
    images, ecr = rows.image_ids[rows.image_index], rows.columns["ecr"]
    shuffled = ArmRows.of(rows.labels[order], rows.margins[order], images[order], ecr=ecr[order])
    drawn = replicate(rows, metrics, draws=50)
    np.testing.assert_allclose(drawn, replicate(shuffled, metrics, draws=50), rtol=0, atol=1e-12)
    np.testing.assert_allclose(drawn[:, 2], replicate(rows, [METRICS["pos_ecr"]], draws=50)[:, 0], atol=1e-15)


def test_pairing_cancels_what_two_arms_share() -> None:
    rows = uneven_rows(5)
    assert rows.margins is not None
    better = ArmRows.of(rows.labels, rows.margins, rows.image_ids[rows.image_index], ecr=rows.columns["ecr"] + 0.125)
    _, _, drawn = paired_draws(better, rows, METRICS["pos_ecr"], draws=400)
    np.testing.assert_allclose(drawn, 0.125, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_difference_with_itself_is_exactly_nothing(name: str) -> None:
    rows = uneven_rows(6)
    found = difference_interval(rows, rows, METRICS[name], draws=50)
    assert (found.value, found.kind) == (0.0, "certain")
    assert math.isnan(found.low), "what holds by construction has no interval"


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


@pytest.mark.parametrize(
    ("name", "rows", "ends"),
    [
        ("hfpr", ArmRows.of([False] * 4, [-1.0] * 4, ["a", "a", "b", "b"]), (0.0, 1 - 0.025 ** (1 / 2))),
        ("accuracy", ArmRows.of([True, False] * 40, [1.0] * 80, np.repeat(np.arange(40), 2)), (0.5 - AWAY, 0.5 + AWAY)),
    ],
    ids=["none of two", "every image half right"],
)
def test_a_share_that_resampling_cannot_vary_has_an_interval_all_the_same(
    name: str, rows: ArmRows, ends: tuple[float, float]
) -> None:
    """Percentiles would say 0 to 0 for 0 of 2 as for 0 of 40, and 0.5 to 0.5 where every image is half right."""
    found = metric_interval(rows, METRICS[name], draws=200)
    assert (found.low, found.high) == pytest.approx(ends, abs=1e-3)
    assert found.kind == "unseen"


@pytest.mark.parametrize(
    ("differ", "kind"), [(9, "unseen"), (10, "percentile"), (30, "percentile"), (40, "percentile")]
)
def test_how_many_images_differ_decides_how_an_interval_is_made(differ: int, kind: str) -> None:
    """However many probes they have: of 100 images, some are right in all of 20 probes, the others in none."""
    right = np.arange(100 * 20) < differ * 20
    rows = ArmRows.of(np.ones(100 * 20), np.where(right, 1.0, -1.0), np.repeat(np.arange(100), 20))
    found = metric_interval(rows, METRICS["accuracy"], draws=2000)
    assert found.kind == kind
    exact = binomtest(differ, 100).proportion_ci(method="exact")
    plain = percentile_interval(replicate(rows, [METRICS["accuracy"]], draws=2000)[:, 0])
    if kind == "unseen":
        assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=0.005)
    elif differ < 40:
        assert found.high - found.low > plain[1] - plain[0]
    else:
        assert (found.low, found.high) == plain


def test_what_does_not_vary_leaves_room_for_another_value_unless_it_holds_by_construction_or_has_no_limits() -> None:
    rows = ArmRows.of(np.ones(20), np.ones(20), np.arange(20), ecr=np.ones(20))
    found = metric_interval(rows, METRICS["pos_ecr"], draws=50)
    assert (found.low, found.high, found.kind) == (pytest.approx(0.025 ** (1 / 20), abs=1e-3), 1.0, "unseen")
    full = replace(rows, columns={**rows.columns, "keep": np.ones(20)})
    found = metric_interval(full, METRICS["pos_ecr"], draws=50)
    assert (found.value, found.kind, math.isnan(found.low)) == (1.0, "certain", True)
    cropped = replace(full, columns={**full.columns, "ecr": np.r_[0.4, np.ones(19)]})
    assert metric_interval(cropped, METRICS["pos_ecr"], draws=50).kind == "unseen", "what was cropped is measured"
    rows = ArmRows.of(np.ones(30), np.ones(30), np.arange(30), legibility=np.full(30, 12.0), ecr=np.ones(30))
    found = metric_interval(rows, METRICS["legibility"], draws=50)
    assert (found.value, found.kind, math.isnan(found.high)) == (12.0, "none", True)
    assert "0 of 30 images differ" in found.reason
    several = replace(rows, columns={**rows.columns, "legibility": np.r_[np.full(26, 12.0), 3.0, 4.0, 5.0, 3.0]})
    found = metric_interval(several, METRICS["legibility"], draws=50)
    assert found.kind == "student"
    assert found.low < found.value - 1.0


@pytest.mark.parametrize("ties", [False, True])
def test_pseudo_values_are_those_of_every_image_left_out(ties: bool) -> None:
    rng = np.random.default_rng(9)
    margins = rng.normal(size=60)
    rows = ArmRows.of(
        rng.random(60) < 0.4, margins.round() if ties else margins, rng.integers(0, 12, 60), ecr=rng.random(60)
    )
    sums = ImageSums.of(rows, [METRICS[name] for name in ("accuracy", "pos_ecr", "auroc")])
    left_out = np.concatenate([sums.at(1.0 - (np.arange(12) == image)[None]) for image in range(12)])
    np.testing.assert_allclose(sums.pseudo_values(), 12 * sums.point - 11 * left_out, atol=1e-12)
    rows = ArmRows.of([True, True, False, False], [1.0, 2.0, 0.0, 3.0], [0, 0, 1, 2])
    without = ImageSums.of(rows, [METRICS["auroc"]]).pseudo_values()[:, 0]
    assert np.isnan(without).tolist() == [True, False, False]


def test_the_interval_of_a_mean_agrees_with_normal_theory() -> None:
    values = np.random.default_rng(4).normal(size=400)
    found = clustered_mean(values, np.arange(400), draws=10_000)
    error = values.std() / 20
    expected = (values.mean() - 1.96 * error, values.mean() + 1.96 * error)
    # The 2.5 % quantile of 10,000 normal draws is good to 2.67 / sqrt(10000) of their standard deviation, here 0.0013.
    assert (found.low, found.high) == pytest.approx(expected, abs=4 * 0.0267 * error)


def test_arms_resampled_together_are_what_each_is_alone() -> None:
    metrics = [METRICS[name] for name in ("accuracy", "auroc", "pos_ecr")]
    arms = [uneven_rows(seed, images) for images, seed in ((12, 1), (12, 2), (9, 3))]
    together = replicate_all([ImageSums.of(rows, metrics) for rows in arms], draws=60)
    for rows, found in zip(arms, together, strict=True):
        np.testing.assert_array_equal(found, replicate(rows, metrics, draws=60))


def test_auroc_of_large_arms_has_fewer_draws_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [ranked_draws(rows, 10_000) for rows in (200_000, 400_000, 10**9)] == [10_000, 5_000, 1_000]
    assert ranked_draws(10**9, 300) == 300
    rows, metrics = uneven_rows(4), [METRICS["accuracy"], METRICS["auroc"]]
    whole = replicate(rows, metrics, draws=100)
    assert ranked_words(len(rows.labels), 100) == ""
    monkeypatch.setattr(bootstrap, "FEWEST_RANKED", 30)
    monkeypatch.setattr(bootstrap, "RANKED_ROWS", 1)
    fewer = replicate(rows, metrics, draws=100)
    np.testing.assert_array_equal(fewer[:, 0], whole[:, 0])
    np.testing.assert_array_equal(fewer[:30, 1], whole[:30, 1])
    assert np.isnan(fewer[30:, 1]).all()
    monkeypatch.setattr(bootstrap, "_BLOCK_CELLS", 20 * rows.n_images)
    np.testing.assert_array_equal(replicate(rows, metrics, draws=100), fewer, "however many draws are made at once")
    assert metric_interval(rows, METRICS["auroc"], draws=100).valid_draws == 30
    assert "first 30 of 100 draws" in ranked_words(len(rows.labels), 100)


def arm(ecr: np.ndarray) -> ArmRows:
    return ArmRows.of(np.ones(len(ecr), dtype=bool), np.ones(len(ecr)), np.arange(len(ecr)), ecr=ecr)


def test_seeds_that_are_alike_leave_image_uncertainty_and_those_that_differ_widen_it() -> None:
    rng = np.random.default_rng(0)
    left, right, metric = arm(rng.random(80)), arm(rng.random(80)), METRICS["pos_ecr"]
    found = two_stage_difference(left, [right] * 3, metric, draws=2000)
    expected = difference_interval(left, right, metric, draws=2000)
    assert [found.value, found.low, found.high] == pytest.approx([expected.value, expected.low, expected.high])
    same = np.full(80, 0.5)
    apart = two_stage_difference(left, [arm(same + s) for s in (-0.3, 0.0, 0.3)], metric, draws=2000)
    together = two_stage_difference(left, [arm(same)] * 3, metric, draws=2000)
    assert apart.value == pytest.approx(together.value)
    assert apart.high - apart.low > 1.5 * (together.high - together.low)


def test_two_stage_draws_are_the_mean_of_the_drawn_seeds_on_the_drawn_images() -> None:
    """Spelled out: per draw a submatrix of seeds x images, with repetition, and its mean."""
    rng = np.random.default_rng(2)
    target, masks, draws = rng.random(30), rng.random((4, 30)), 400
    seeded = [arm(mask) for mask in masks]
    found = two_stage_difference(arm(target), seeded, METRICS["pos_ecr"], draws=draws)
    ours = two_stage_draws({"a": arm(target)}, seeded, [METRICS["pos_ecr"]], draws=draws, seed=SEED)["a"]
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


def test_several_arms_and_metrics_are_the_single_differences() -> None:
    rng = np.random.default_rng(3)
    arms, seeded = {name: arm(rng.random(40)) for name in "ab"}, [arm(rng.random(40)) for _ in range(3)]
    metrics = [METRICS[name] for name in ("accuracy", "pos_ecr", "hfpr")]
    together = two_stage_differences(arms, seeded, metrics, draws=500)
    assert len(together) == 6
    for (name, metric), found in together.items():
        if metric == "hfpr":
            assert ("there are no negatives" in found.reason, math.isnan(found.value)) == (True, True)
        else:
            assert found == two_stage_difference(arms[name], seeded, METRICS[metric], draws=500)
