from __future__ import annotations

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.pyramiddrop import PyramidDrop
from tests.golden.adapters.pyramiddrop import last_token_attention
from tests.unit.selectors.layer_states import check_any_input, check_schedule, layer_state


def test_contract() -> None:
    check_any_input(PyramidDrop())
    check_schedule(PyramidDrop())


def test_an_eighth_is_reached_by_halving() -> None:
    assert PyramidDrop().schedule(576, 72, 32) == {7: 288, 15: 144, 23: 72}
    assert PyramidDrop().schedule(2880, 360, 28) == {6: 1440, 13: 720, 20: 360}


def test_shallow_models() -> None:
    assert PyramidDrop().schedule(64, 8, 4) == {0: 32, 1: 16, 2: 8}
    assert PyramidDrop().schedule(64, 8, 3) == {0: 32, 1: 8}
    assert PyramidDrop().schedule(64, 8, 1) == {0: 8}


def test_ranks_by_the_next_layer() -> None:
    state = layer_state(4, 4)
    wanted = state.signals["lm.next_attention_last"].mean(dim=0)[state.image].topk(5).indices
    assert PyramidDrop().cut(state, 5).anchors.tolist() == sorted(wanted.tolist())


def test_last_token_attention_is_the_last_row_of_causal_attention() -> None:
    generator = torch.Generator().manual_seed(2)
    query, key = torch.randn(2, 3, 9, 8, generator=generator), torch.randn(2, 3, 9, 8, generator=generator)
    value = torch.eye(9).expand(2, 3, 9, 9)
    rows = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(last_token_attention(query[:, :, -1], key), rows[:, :, -1])


def test_refuses_no_stage() -> None:
    with pytest.raises(SightlineError, match="stages"):
        PyramidDrop(stages=0)
