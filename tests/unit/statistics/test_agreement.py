from __future__ import annotations

import numpy as np
import pytest
from shapely.geometry import box as polygon
from shapely.ops import unary_union

from sightline.statistics.agreement import agreement_rate, box_agreement, cohen_kappa, kappa_interval
from sightline.statistics.intervals import wilson


def test_kappa_by_hand() -> None:
    first = ["y"] * 30 + ["n"] * 20
    second = ["y"] * 25 + ["n"] * 5 + ["y"] * 10 + ["n"] * 10
    by_chance = 0.6 * 0.7 + 0.4 * 0.3
    assert cohen_kappa(first, second) == pytest.approx((0.7 - by_chance) / (1 - by_chance))
    assert cohen_kappa(["y", "y"], ["y", "y"]) == 1.0, "where agreement by chance is certain"
    assert cohen_kappa(["y", "y"], ["n", "n"]) == 0.0


def test_kappa_handles_more_than_two_categories_and_its_interval_contains_it() -> None:
    rng = np.random.default_rng(0)
    first = rng.choice(["a", "b", "c"], 150)
    second = np.where(rng.random(150) < 0.7, first, rng.choice(["a", "b", "c"], 150))
    found = kappa_interval(first, second, draws=2000)
    assert found.low < found.value < found.high
    assert found.value == pytest.approx(cohen_kappa(first, second))
    same = float(np.mean(first == second))
    rate = agreement_rate(first, second)
    assert rate.value == same
    assert (rate.low, rate.high) == wilson(round(same * 150), 150)


def test_unions_are_exact_for_overlapping_boxes() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        first, second = (np.sort(rng.random((n, 2, 2)), axis=1).reshape(n, 4) for n in (4, 3))
        found = box_agreement(first.tolist(), second.tolist())
        one, two = (unary_union([polygon(*b) for b in boxes]) for boxes in (first, second))
        assert found.union_iou == pytest.approx(one.intersection(two).area / one.union(two).area, abs=1e-12)
        assert found.first_covered == pytest.approx(one.intersection(two).area / one.area, abs=1e-12)


def test_matching_is_one_to_one_best_first() -> None:
    wide, narrow = (0.0, 0.0, 0.4, 0.4), (0.0, 0.0, 0.4, 0.2)
    found = box_agreement([wide, narrow], [wide, (0.6, 0.6, 0.7, 0.7)], ["answer_value:a"], ["answer_value: b"])
    assert found.matched_iou == (1.0, 0.0)
    assert found.same_types
    assert not found.all_matched
    assert found.needs_adjudication
    same = box_agreement([wide], [wide], ["context:x"], ["context:y"])
    assert same.all_matched
    assert not same.needs_adjudication
    nothing = box_agreement([], [wide])
    assert (nothing.union_iou, nothing.first_covered, nothing.matched_iou) == (0.0, 0.0, ())
