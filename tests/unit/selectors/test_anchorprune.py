from __future__ import annotations

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.anchorprune import AnchorPrune, AnchorPruneQwen, anchorprune_order
from tests.unit.selectors.views import view


def by_definition(
    relevance: torch.Tensor,
    features: torch.Tensor,
    importance: torch.Tensor,
    k: int,
    k_min: int,
    tau: float,
    patience: int,
) -> tuple[list[int], int]:
    unit = features.double() / features.double().norm(dim=1, keepdim=True)
    distance = 1.0 - unit @ unit.T
    ranked = sorted(range(len(unit)), key=lambda i: -float(relevance[i]))
    reference, picks, novel = ranked[:k_min], ranked[:k_min], 0
    for token in ranked[k_min : max(k_min, k // 2)]:
        picks = [*picks, token]
        novel += min(float(distance[token, j]) for j in reference) > tau
        if novel == patience:
            break
    length = len(picks)
    while len(picks) < k:
        score = [float(importance[i]) * min(1.0, *(float(distance[i, j]) for j in picks)) for i in range(len(unit))]
        picks = [*picks, max((i for i in range(len(unit)) if i not in picks), key=lambda i: (score[i], -i))]
    return picks, length


@pytest.mark.parametrize(("k_min", "tau", "patience"), [(4, 0.2, 3), (4, 0.7, 2), (4, 1.5, 3), (25, 0.2, 3)])
def test_picks_follow_the_definition(k_min: int, tau: float, patience: int) -> None:
    torch.manual_seed(1)
    relevance, features, importance = torch.rand(2, 60), torch.randn(2, 60, 8) + 0.4, torch.rand(2, 60)
    order, length = anchorprune_order(relevance, features, importance, features, 30, k_min, tau=tau, patience=patience)
    for image in range(2):
        expected = by_definition(relevance[image], features[image], importance[image], 30, k_min, tau, patience)
        assert (order[image].tolist(), int(length[image])) == expected


def clip_signals(n: int) -> dict[str, torch.Tensor]:
    return {
        "clip.image": torch.randn(n, 8),
        "clip.text": torch.randn(1, 8),
        "vision.hidden@-2": torch.randn(n, 16),
        "vision.cls_attention@-2": torch.rand(4, n),
    }


def test_a_batch_chooses_as_its_images_do_alone() -> None:
    torch.manual_seed(2)
    views = [view(torch.randn(50, 8), signals=clip_signals(50)) for _ in range(3)]
    for one, v in zip(AnchorPrune().select_many(views, 20), views, strict=True):
        assert torch.equal(one.anchors, AnchorPrune().select(v, 20).anchors)


def test_the_qwen_form_batches_questions_of_different_length() -> None:
    torch.manual_seed(3)
    views = [
        view(torch.randn(50, 8), query=torch.randn(length, 8), signals={"vision.received@-1": torch.rand(50)})
        for length in (2, 7, 0)
    ]
    for aggregate in ("max", "mean"):
        selector = AnchorPruneQwen(aggregate=aggregate)
        for one, v in zip(selector.select_many(views, 20), views, strict=True):
            assert torch.equal(one.anchors, selector.select(v, 20).anchors)


def test_without_importance_the_lowest_indices_fill_up() -> None:
    torch.manual_seed(4)
    signals = clip_signals(30)
    signals["vision.cls_attention@-2"] = torch.zeros(4, 30)
    signals["clip.text"] = -signals["clip.image"][29:]
    anchors = AnchorPrune(k_min=1, max_ratio=0.0).select(view(torch.zeros(30, 8), signals=signals), 6).anchors
    assert anchors.tolist() == [0, 1, 2, 3, 4, 29]


def test_zero_tokens_and_duplicates_still_give_k_distinct_ones() -> None:
    torch.manual_seed(5)
    signals = clip_signals(30)
    for name in ("clip.image", "vision.hidden@-2"):
        signals[name][:10], signals[name][10:20] = 0.0, signals[name][10].clone()
    assert len(AnchorPrune().select(view(torch.zeros(30, 8), signals=signals), 29).anchors.unique()) == 29


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(SightlineError, match="patience"):
        AnchorPrune(patience=0)
    with pytest.raises(SightlineError, match="max_ratio"):
        AnchorPruneQwen(max_ratio=2.0)
    with pytest.raises(SightlineError, match="aggregate"):
        AnchorPruneQwen(aggregate="sum")  # type: ignore[arg-type]
