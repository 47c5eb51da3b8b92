from __future__ import annotations

import math

import numpy as np
import pytest

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.bootstrap import SEED, count_blocks, difference_interval
from sightline.statistics.metrics import METRICS
from sightline.statistics.paired_scores import two_stage_difference, two_stage_differences, two_stage_draws


def arm(ecr: np.ndarray) -> ArmRows:
    return ArmRows.of(np.ones(len(ecr), dtype=bool), np.ones(len(ecr)), np.arange(len(ecr)), ecr=ecr)


def test_identical_seeds_leave_only_image_uncertainty() -> None:
    rng = np.random.default_rng(0)
    left, right = arm(rng.random(80)), arm(rng.random(80))
    found = two_stage_difference(left, [right, right, right], METRICS["pos_ecr"], draws=2000)
    expected = difference_interval(left, right, METRICS["pos_ecr"], draws=2000)
    assert [found.value, found.low, found.high] == pytest.approx([expected.value, expected.low, expected.high])


def test_seeds_that_differ_widen_the_interval() -> None:
    rng = np.random.default_rng(1)
    left = arm(rng.random(80))
    same = np.full(80, 0.5)
    apart = two_stage_difference(left, [arm(same + s) for s in (-0.3, 0.0, 0.3)], METRICS["pos_ecr"], draws=2000)
    together = two_stage_difference(left, [arm(same)] * 3, METRICS["pos_ecr"], draws=2000)
    assert apart.value == pytest.approx(together.value)
    assert apart.high - apart.low > 1.5 * (together.high - together.low)


def test_bad_input_is_one_clear_line() -> None:
    one = arm(np.array([0.1, 0.2]))
    with pytest.raises(SightlineError, match="at least two seeds"):
        two_stage_difference(one, [one], METRICS["pos_ecr"])
    with pytest.raises(SightlineError, match="on the images of the arm"):
        two_stage_difference(one, [one, arm(np.array([0.1, 0.2, 0.3]))], METRICS["pos_ecr"])
    with pytest.raises(SightlineError, match="no negatives"):
        two_stage_difference(one, [one, one], METRICS["hfpr"])


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
    for (name, metric), found in together.items():
        if metric == "hfpr":
            assert "there are no negatives" in found.reason
            assert math.isnan(found.value)
        else:
            assert found == two_stage_difference(arms[name], seeded, METRICS[metric], draws=500)
    assert len(together) == 6
