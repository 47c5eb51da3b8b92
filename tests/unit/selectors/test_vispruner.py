from __future__ import annotations

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.vispruner import VisPruner, thin, vispruner_kept
from tests.unit.selectors.contract import check_contract, scene


def test_contract() -> None:
    check_contract(VisPruner())
    check_contract(VisPruner(important_ratio=0.0))
    check_contract(VisPruner(important_ratio=1.0))


@pytest.mark.parametrize("k", [9, 10, 11])
def test_an_odd_pool_still_gives_k_distinct_tokens(k: int) -> None:
    n = 33  # with half of k chosen by attention, the pool of the rest is odd for some of these budgets
    features, attention = torch.randn(1, n, 8), torch.rand(1, n)
    kept = vispruner_kept(features, attention, k, k // 2)[0]
    assert len(set(kept.tolist())) == k


def test_a_duplicate_goes_before_anything_else() -> None:
    similarity = torch.eye(6)
    similarity[2, 5] = similarity[5, 2] = 0.99
    # Position 2 of the pool is even (token 2), token 5 is at an odd position.
    assert thin(similarity[None], torch.tensor([[0, 1, 2, 5, 4, 3]]), 5)[0].tolist() == [0, 4, 1, 5, 3]


def test_important_tokens_are_never_thinned() -> None:
    view = scene(3)
    attention = view.signals["vision.cls_attention@-2"].mean(dim=0)
    kept = set(VisPruner().select(view, 12).anchors.tolist())
    assert set(attention.topk(6).indices.tolist()) <= kept


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(SightlineError, match="important_ratio"):
        VisPruner(important_ratio=1.5)
