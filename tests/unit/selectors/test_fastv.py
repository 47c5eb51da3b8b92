from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors import SELECTORS
from sightline.selectors.fastv import FastV, attention_score
from tests.unit.selectors.layer_states import check_any_input, check_schedule, layer_state


def test_contract() -> None:
    assert SELECTORS.get("fastv") is FastV
    check_any_input(FastV())
    check_schedule(FastV())


def test_full_layers_then_one_cut() -> None:
    assert FastV().schedule(576, 231, 32) == {2: 231}
    assert FastV(fastv_k=2).schedule(576, 231, 32) == {1: 231}
    assert FastV().schedule(64, 20, 4) == {2: 20}
    assert FastV().schedule(64, 20, 3) == {1: 20}


def test_keeps_what_the_last_token_looks_at_and_ignores_text() -> None:
    state = layer_state(3, 4, before=2, behind=3)
    row = torch.zeros(2, 17)
    row[:, 0] = row[:, 16] = 0.3
    row[0, 2 + 7], row[1, 2 + 4] = 0.2, 0.1
    selection = FastV().cut(replace(state, signals={"lm.attention_last": row}), 3)
    assert selection.anchors.tolist() == [0, 4, 7]
    assert selection.mix is None


def test_score_has_a_batch_dimension_and_rises_to_float32() -> None:
    rows = torch.rand(3, 4, 10, generator=torch.Generator().manual_seed(0))
    image = torch.tensor([2, 3, 7])
    torch.testing.assert_close(attention_score(rows, image)[1], rows[1].mean(dim=0)[image])
    assert attention_score(rows.bfloat16(), image).dtype == torch.float32


def test_refuses_no_full_layer() -> None:
    with pytest.raises(SightlineError, match="fastv_k"):
        FastV(fastv_k=0)
