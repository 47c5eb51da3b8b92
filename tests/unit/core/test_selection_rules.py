"""What holds of every budget and selection; how much of an output comes from a source, which legibility divides by."""

from __future__ import annotations

import pytest
import torch

from sightline.core.selection import Budget, Selection
from sightline.core.selection_rules import contributing, in_native_order, largest_shares, lineage_mask, output_parts


@pytest.mark.parametrize(
    ("budget", "n", "k"),
    [
        (Budget.ratio(0.3), 7, 3),
        (Budget.ratio(0.3), 10, 3),
        (Budget.ratio(1.0), 7, 7),
        (Budget.ratio(0.01), 7, 1),
        (Budget.tokens(5), 7, 5),
        (Budget.tokens(9), 7, 7),
        (Budget(keep=0.0), 7, 1),
    ],
)
def test_a_budget_is_rounded_up_and_keeps_a_token_at_least_and_no_more_than_there_are(
    budget: Budget, n: int, k: int
) -> None:
    assert budget.resolve(n) == k


def test_a_budget_of_every_tile_is_rounded_up_in_each_of_them() -> None:
    tiles = ((2, 2), (2, 2), (1, 3))
    assert Budget.ratio(0.3).total(tiles) == 4
    assert Budget.ratio(0.3, per="tile").total(tiles) == 2 + 2 + 1


def test_outputs_stand_in_the_order_of_their_anchors_and_keep_their_own_mix() -> None:
    mix = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    ordered = in_native_order(Selection(torch.tensor([2, -1, 1]), mix))
    assert ordered.anchors.tolist() == [-1, 1, 2]
    assert ordered.mix is not None
    assert torch.equal(ordered.mix, mix[[1, 2, 0]])


def test_a_source_that_is_subtracted_is_of_the_lineage_too() -> None:
    mix = torch.tensor([[1.0, -0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    assert lineage_mask(Selection(torch.tensor([0, -1]), mix), 3).tolist() == [True, True, False]


def test_an_even_mix_of_m_sources_gives_each_one_mth_whatever_the_weights_add_up_to() -> None:
    mix = torch.tensor([[3.0, 3.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.25]])
    assert output_parts(mix).tolist() == [pytest.approx([1 / 3] * 3 + [0.0]), [0.0, 0.0, 0.0, 1.0]]


def test_the_output_that_holds_most_of_a_source_counts() -> None:
    mix = torch.tensor([[0.9, 0.1, 0.0], [0.25, 0.75, 0.0]])
    assert largest_shares(mix, 3).tolist() == pytest.approx([0.9, 0.75, 0.0])


def test_weights_that_subtract_take_their_part_too() -> None:
    assert largest_shares(torch.tensor([[1.0, -1.0]]), 2).tolist() == [0.5, 0.5]


def test_the_class_token_takes_its_part_and_has_no_cell() -> None:
    assert largest_shares(torch.tensor([[1.0, 1.0, 2.0]]), 2).tolist() == [0.25, 0.25]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_every_source_with_a_weight_has_a_share_and_no_other(dtype: torch.dtype) -> None:
    mix = torch.tensor([[1e4, 1e-7, 0.0, 0.0], [0.0, 1e-7, 0.0, 1.0]], dtype=dtype)
    assert torch.equal(largest_shares(mix, 4) > 0, contributing(mix, 4))
    denormal = torch.tensor([[1e10, 1e-45]])
    assert torch.equal(largest_shares(denormal, 2) > 0, contributing(denormal, 2))


def test_an_output_made_of_nothing_has_no_parts() -> None:
    assert output_parts(torch.zeros(2, 3)).tolist() == [[0.0] * 3] * 2
