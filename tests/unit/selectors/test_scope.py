from __future__ import annotations

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.scope import Scope, scope_order
from tests.unit.selectors.views import view


def by_definition(features: torch.Tensor, saliency: torch.Tensor, k: int, combined: str) -> list[int]:
    unit = features.double() / features.double().norm(dim=1, keepdim=True)
    similarity, covered = unit @ unit.T, torch.zeros(len(unit), dtype=torch.float64)
    picks: list[int] = []
    while len(picks) < k:
        best, best_score = -1, -1.0
        for j in range(len(unit)):
            gain = float((similarity[j] - covered).clamp(min=0.0).sum())
            score = gain * float(saliency[j]) if combined == "multi" else gain + float(saliency[j])
            if j not in picks and score > best_score:
                best, best_score = j, score
        picks.append(best)
        covered = torch.maximum(covered, similarity[best])
    return picks


@pytest.mark.parametrize("combined", ["multi", "add"])
def test_picks_follow_the_definition(combined: str) -> None:
    torch.manual_seed(1)
    features, saliency = torch.randn(90, 24) + 0.3, torch.rand(90)
    assert scope_order(features[None], saliency[None], 40, combined)[0].tolist() == by_definition(  # type: ignore[arg-type]
        features, saliency, 40, combined
    )


def signals(n: int) -> dict[str, torch.Tensor]:
    return {"vision.hidden@-2": torch.randn(n, 16), "vision.cls_attention@-2": torch.rand(4, n)}


def test_a_batch_chooses_as_its_images_do_alone() -> None:
    torch.manual_seed(2)
    views = [view(torch.zeros(70, 8), signals=signals(70)) for _ in range(3)]
    for one, v in zip(Scope().select_many(views, 30), views, strict=True):
        assert torch.equal(one.anchors, Scope().select(v, 30).anchors)


def test_pure_coverage_neither_needs_nor_reads_attention() -> None:
    torch.manual_seed(3)
    coverage = Scope(alpha=0.0)
    assert coverage.needs == {"vision.hidden@-2"}
    assert Scope().needs == {"vision.hidden@-2", "vision.cls_attention@-2"}
    features = torch.randn(50, 16)
    anchors = coverage.select(view(torch.zeros(50, 8), signals={"vision.hidden@-2": features}), 20).anchors
    assert anchors.tolist() == sorted(by_definition(features, torch.ones(50), 20, "multi"))


def test_zero_tokens_and_saturation_still_give_k_distinct_ones() -> None:
    torch.manual_seed(4)
    known = signals(40)
    known["vision.hidden@-2"][::2] = 0.0
    known["vision.hidden@-2"][1::4] = known["vision.hidden@-2"][1]
    anchors = Scope().select(view(torch.zeros(40, 8), signals=known), 39).anchors
    assert len(anchors.unique()) == 39


@pytest.mark.parametrize("wrong", [{"combined": "product"}, {"alpha": -1.0}])
def test_wrong_parameters_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SightlineError, match="scope"):
        Scope(**wrong)  # type: ignore[arg-type]
