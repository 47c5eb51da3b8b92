"""Compact positions: ranks from a presence mask are the ranks that sorting the distinct values gives."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from sightline.backbones.qwen3_vl import _ranks


@given(st.lists(st.integers(0, 29), min_size=1, max_size=60))
def test_ranks_among_those_that_occur(values: list[int]) -> None:
    given_values = torch.tensor(values)
    distinct, expected = torch.unique(given_values, sorted=True, return_inverse=True)
    ranks, count = _ranks(given_values, 30)
    assert torch.equal(ranks, expected)
    assert int(count) == len(distinct)
