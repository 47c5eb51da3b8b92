"""How much of an output comes from a source: what legibility divides by."""

from __future__ import annotations

import pytest
import torch

from sightline.core.selection_rules import contributing, largest_shares, output_parts


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
