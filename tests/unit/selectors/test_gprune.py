from __future__ import annotations

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.gprune import GPrune, flow_scores
from tests.unit.selectors.contract import check_contract, scene


def test_contract() -> None:
    check_contract(GPrune())


def test_flow_equals_the_matrix_power() -> None:
    tokens = scene(0).tokens + 1.0
    unit = tokens / tokens.norm(dim=1, keepdim=True)
    cosine = unit @ unit.T
    logits = torch.where(cosine < 0.5, -5000.0, cosine / 0.03)
    flow = torch.softmax(logits, dim=1)
    expected = tokens.norm(dim=1) @ torch.linalg.matrix_power(flow, 5) / (flow > 0).sum(dim=1)
    torch.testing.assert_close(flow_scores(tokens[None], 0.5, 0.03, 5)[0], expected)


def test_unconnected_tokens_keep_their_own_norm() -> None:
    tokens = torch.diag(torch.tensor([3.0, 1.0, 2.0]))
    assert flow_scores(tokens[None], 0.5, 0.03, 5)[0].tolist() == [3.0, 1.0, 2.0]


def test_a_cosine_at_the_threshold_is_an_edge() -> None:
    tokens = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, -1.0]])  # cosine exactly one half
    connected = flow_scores(tokens[None], 0.5, 1.0, 1)[0]
    apart = flow_scores(tokens[None], 0.5001, 1.0, 1)[0]
    assert connected.tolist() == [1.0, 1.0]
    assert apart.tolist() == [2.0, 2.0]


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(SightlineError, match="temperature"):
        GPrune(temperature=0.0)
