"""The statistics vectors of ``misc.json``. Intervals are checked under the convention that produced each of them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sightline.statistics.agreement import box_agreement, cohen_kappa, kappa_draws
from sightline.statistics.correlation import partial_spearman, partial_spearman_draws, spearman
from sightline.statistics.intervals import wilson
from sightline.statistics.metrics import auroc, expected_calibration_error
from sightline.statistics.paired import mcnemar_p
from sightline.statistics.thresholds import accuracy_optimal
from tests.unit.statistics.golden_rows import (
    counts,
    floor_index_interval,
    linear_interval,
    lower_rank_interval,
    twister_indices,
)


@pytest.fixture(scope="module")
def misc(data: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((data / "protocol" / "golden_json" / "misc.json").read_text())
    return loaded


def test_threshold_and_auroc(misc: dict[str, Any]) -> None:
    margins, labels = zip(*misc["threshold"]["rows"], strict=True)
    best = accuracy_optimal(labels, margins)
    assert best.threshold == misc["threshold"]["best"]
    expected = misc["threshold"]["metrics"]
    found = {
        "acc": best.accuracy,
        "hFPR": best.hfpr,
        "pos_acc": best.positive_accuracy,
        "neg_acc": best.negative_accuracy,
        "yes_rate": best.yes_rate,
    }
    assert found == pytest.approx(expected, abs=1e-15)
    assert auroc(labels, margins) == pytest.approx(misc["threshold"]["auroc"], abs=1e-15)


def test_the_vectorised_twister_is_cpythons() -> None:
    for seed, n in ((5, 27), (20260724, 32), ("hard-negative-agreement-v1", 100)):
        rng = random.Random(seed)
        assert twister_indices(seed, 7, n).tolist() == [[rng.randrange(n) for _ in range(n)] for _ in range(7)]
        rng = random.Random(seed)
        assert twister_indices(seed, 7, n).tolist() == [[rng.choice(range(n)) for _ in range(n)] for _ in range(7)]


def test_bootstrap_of_a_mean_under_the_twister_and_floor_index_percentiles(misc: dict[str, Any]) -> None:
    values = np.array(misc["bootstrap"]["values"])
    means = counts(twister_indices(20260724, 2000, len(values))) @ values / len(values)
    assert floor_index_interval(means) == pytest.approx(misc["bootstrap"]["int_index_2000_seed20260724"], abs=1e-14)


def test_bootstrap_of_a_mean_under_the_twister_and_lower_rank_percentiles(misc: dict[str, Any]) -> None:
    values = np.array(misc["bootstrap"]["values"])
    means = counts(twister_indices(20260722, 2000, len(values))) @ values / len(values)
    assert lower_rank_interval(means) == pytest.approx(misc["bootstrap"]["cluster_choice_2000_seed20260722"], abs=1e-14)


def test_partial_and_marginal_spearman_with_refitting_bootstrap_one_pcg_call_per_draw(misc: dict[str, Any]) -> None:
    case = misc["partial_spearman"]
    controls = list(np.array(case["controls"]).T)
    value, low, high, valid, varying = case["result_500_seed5"]
    assert partial_spearman(case["x"], case["y"], controls) == pytest.approx(value, abs=1e-14)
    rng = np.random.default_rng(5)
    n = len(case["x"])
    weights = counts(np.stack([rng.integers(0, n, n) for _ in range(valid)])).T
    draws = partial_spearman_draws(case["x"], case["y"], controls, weights)
    assert np.isfinite(draws).sum() == valid
    assert linear_interval(draws) == pytest.approx((low, high), abs=1e-13)
    assert sum(np.ptp(control) > 0 for control in controls) == varying
    value, low, high, valid = case["marginal_500_seed5"]
    assert spearman(case["x"], case["y"]) == pytest.approx(value, abs=1e-14)
    draws = partial_spearman_draws(case["x"], case["y"], [], weights)
    assert linear_interval(draws) == pytest.approx((low, high), abs=1e-13)


def test_wilson(misc: dict[str, Any]) -> None:
    for successes, n, interval in misc["wilson"]:
        assert wilson(successes, n) == pytest.approx(interval, abs=1e-15)


def test_mcnemar(misc: dict[str, Any]) -> None:
    for b, c, p in misc["mcnemar"]:
        assert mcnemar_p(b, c) == pytest.approx(p, rel=1e-12)


def test_kappa_with_rows_resampled_by_the_twister_seeded_with_a_string(misc: dict[str, Any]) -> None:
    first, second = zip(*misc["kappa"]["pairs"], strict=True)
    assert cohen_kappa(first, second) == pytest.approx(misc["kappa"]["value"], abs=1e-15)
    weights = counts(twister_indices("hard-negative-agreement-v1", 5000, len(first)))
    assert linear_interval(kappa_draws(first, second, weights)) == pytest.approx(misc["kappa"]["ci"], abs=1e-14)


def test_ece15(misc: dict[str, Any]) -> None:
    case = misc["ece15"]
    assert expected_calibration_error(case["confidence"], case["correct"]) == pytest.approx(case["value"], abs=1e-15)


def test_box_agreement_of_boxes_rebuilt_from_the_case(misc: dict[str, Any]) -> None:
    """The case lists results only. Two equal squares shifted by a tenth of their side and a disjoint box a quarter
    as large give all of its overlaps, so those are the boxes."""
    case = misc["agreement"]
    found = box_agreement(
        [(0.1, 0.1, 0.3, 0.3), (0.6, 0.6, 0.7, 0.7)],
        [(0.12, 0.12, 0.32, 0.32)],
        ["answer_value:12", "context: total"],
        ["answer_value:12"],
    )
    assert round(float(np.mean(found.matched_iou)), 4) == case["mean_matched_iou"]
    assert round(min(found.matched_iou), 4) == case["min_matched_iou"]
    assert len(found.matched_iou) == case["matched_box_pairs"]
    assert round(found.union_iou, 4) == case["union_region_iou"]
    assert round(found.first_covered, 4) == case["primary_covered_by_secondary"]
    assert round(found.second_covered, 4) == case["secondary_covered_by_primary"]
    assert found.same_types == bool(case["label_type_set_match"])
    assert found.all_matched == bool(case["all_boxes_matched_iou"])
    assert found.needs_adjudication == bool(case["needs_adjudication"])
