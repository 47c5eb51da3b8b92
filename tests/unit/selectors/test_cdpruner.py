from __future__ import annotations

import pytest
import torch

from sightline.selectors.cdpruner import CDPruner, cdpruner_order, conditional_relevance, text_dissimilarity
from tests.unit.selectors.views import view


def test_each_pick_maximises_the_determinant() -> None:
    torch.manual_seed(1)
    tokens, relevance = torch.randn(25, 40), torch.rand(25) + 0.1
    unit = tokens.double() / tokens.double().norm(dim=1, keepdim=True)
    kernel = (unit @ unit.T) * relevance.double()[:, None] * relevance.double()[None]
    picks = cdpruner_order(tokens[None], relevance[None], 12)[0].tolist()
    for step, pick in enumerate(picks):
        determinants = torch.full((25,), -1.0, dtype=torch.float64)
        for j in set(range(25)) - set(picks[:step]):
            chosen = [*picks[:step], j]
            determinants[j] = torch.linalg.det(kernel[chosen][:, chosen])
        assert pick == int(determinants.argmax())


def test_relevance_is_highest_where_the_patch_is_least_like_the_text() -> None:
    text = torch.tensor([[1.0, 0.0]])
    patches = torch.tensor([[[3.0, 0.0], [0.0, 1.0], [-2.0, 0.0]]])
    relevance = conditional_relevance(text_dissimilarity(patches, text))
    torch.testing.assert_close(relevance, torch.tensor([[5e-7, 0.5, 1.0]]), atol=1e-6, rtol=0.0)


def test_images_of_a_batch_influence_each_other_only_on_request() -> None:
    scores = torch.tensor([[0.0, 1.0], [2.0, 4.0]])
    assert torch.equal(conditional_relevance(scores)[0], conditional_relevance(scores[:1])[0])
    assert conditional_relevance(scores, across_batch=True)[0, 1] < 0.5


def make(n: int, d: int) -> dict[str, torch.Tensor]:
    return {"clip.image": torch.randn(n, d), "clip.text": torch.randn(2, d)}


def test_a_batch_chooses_as_its_images_do_alone() -> None:
    torch.manual_seed(2)
    views = [view(torch.randn(50, 64), signals=make(50, 8)) for _ in range(3)]
    for one, v in zip(CDPruner().select_many(views, 20), views, strict=True):
        assert torch.equal(one.anchors, CDPruner().select(v, 20).anchors)


@pytest.mark.parametrize("k", [1, 10, 40])
def test_k_above_the_rank_zero_tokens_and_flat_relevance_still_give_k_distinct_ones(k: int) -> None:
    torch.manual_seed(3)
    tokens = torch.randn(40, 6)
    tokens[3:8] = 0.0
    signals = {"clip.image": torch.ones(40, 4), "clip.text": torch.ones(1, 4)}
    anchors = CDPruner().select(view(tokens, signals=signals), k).anchors
    assert len(anchors.unique()) == k
