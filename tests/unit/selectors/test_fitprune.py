from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from sightline.selectors.fitprune import DELETED_PER_LAYER, FitPrune, two_sided_attention
from tests.unit.selectors.layer_states import check_any_input, check_schedule, layer_state


def test_contract() -> None:
    check_any_input(FitPrune())
    check_schedule(FitPrune())


@pytest.mark.parametrize("reduction", list(DELETED_PER_LAYER))
def test_published_schedules_come_back(reduction: int) -> None:
    deleted = DELETED_PER_LAYER[reduction]
    schedule = FitPrune().schedule(576, 576 - sum(deleted), 32)
    left = [576]
    for layer in range(32):
        left.append(schedule.get(layer, left[-1]))
    assert tuple(a - b for a, b in pairwise(left)) == deleted


def test_budgets_in_between_are_in_between_everywhere() -> None:
    more, less, between = (FitPrune().schedule(576, k, 32) for k in (240, 173, 200))
    counts = {"more": 576, "less": 576, "between": 576}
    for layer in range(32):
        counts["more"] = more.get(layer, counts["more"])
        counts["less"] = less.get(layer, counts["less"])
        counts["between"] = between.get(layer, counts["between"])
        assert counts["less"] <= counts["between"] <= counts["more"]


def test_a_layer_without_deletions_is_not_cut() -> None:
    assert 31 not in FitPrune().schedule(576, 127, 32)
    assert 24 not in FitPrune().schedule(576, 127, 32)


def test_score_needs_attention_from_both_sides() -> None:
    state = layer_state(1, 4, before=1, behind=2, heads=2)
    attention = torch.zeros(2, 7, 7)
    attention[0, 4, 1] = 0.5  # token 0: by the image
    attention[1, 5, 2] = 0.5  # token 1: by the text
    attention[0, 4, 3], attention[1, 6, 3] = 0.2, 0.2  # token 2: by both
    score = two_sided_attention(attention, state.image)
    assert score.tolist() == pytest.approx([0.0, 0.0, 0.2 / 4 * 0.2, 0.0])


def test_heads_count_by_their_maximum_and_batches_are_independent() -> None:
    attention = layer_state(2, 3).signals["lm.attention"]
    image = layer_state(2, 3).image
    both = two_sided_attention(torch.stack((attention, attention.flip(0) * 0.5)), image)
    torch.testing.assert_close(both[1], both[0] * 0.25)
