"""Methods that keep what the vision tower attends to: FasterVLM, HiPrune, HoloV, VisPruner, VScan, FlowCut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sightline.core.selection import TokenView
from sightline.errors import SightlineError
from sightline.selectors.fastervlm import CLASS_ATTENTION, FasterVLM
from sightline.selectors.flowcut import FlowCut
from sightline.selectors.hiprune import HiPrune, cross_neighbours, hiprune_kept
from sightline.selectors.holov import HoloV, crop_sizes, holov_order
from sightline.selectors.vispruner import VisPruner, thin, vispruner_kept
from sightline.selectors.vscan import VScan, scans, windows
from tests.unit.selectors.views import check_batch, scene, view


def test_heads_are_averaged_and_ties_go_to_the_lower_index() -> None:
    heads = torch.tensor([[0.1, 0.4, 0.0, 0.2, 0.2], [0.3, 0.0, 0.4, 0.2, 0.0]])
    selection = FasterVLM().select(view(torch.zeros(5, 2), signals={CLASS_ATTENTION: heads}), 2)
    assert selection.anchors.tolist() == [0, 1]
    assert selection.mix is None


def test_views_of_different_size_cannot_be_batched() -> None:
    with pytest.raises(SightlineError, match="different shapes"):
        FasterVLM().select_many([scene(0), scene(0, rows=3)], 2)


def test_neighbours_wrap_across_rows_only_when_asked_to() -> None:
    published = cross_neighbours(((3, 4),), wrap=True)
    assert published[4].tolist() == [4, 3, 5, 0, 8]
    assert published[0].tolist() == [0, 0, 1, 0, 4]
    bounded = cross_neighbours(((3, 4),), wrap=False)
    assert bounded[4].tolist() == [4, 4, 5, 0, 8]
    assert bounded[7].tolist() == [7, 6, 7, 3, 11]


def test_neighbours_stay_inside_their_tile() -> None:
    tiles = cross_neighbours(((2, 2), (2, 3)), wrap=False)
    assert tiles[3].tolist() == [3, 2, 3, 1, 3]
    assert tiles[4].tolist() == [4, 4, 5, 4, 7]


def peaked(at: int, n: int = 42) -> torch.Tensor:
    attention = torch.zeros(n)
    attention[at] = 1.0
    return attention


def test_anchor_and_its_cross_come_first_then_the_deep_layer() -> None:
    view: TokenView = scene(0)
    signals = {**view.signals, "vision.received@8": peaked(9), "vision.received@-2": torch.arange(42.0) / 100}
    kept = HiPrune(alpha=0.5).select(replace(view, signals=signals), 8).anchors
    assert kept.tolist() == [2, 8, 9, 10, 16, 39, 40, 41]


def test_more_neighbours_than_budget_keeps_anchors_then_deep_attention() -> None:
    shallow, deep = peaked(9)[None], torch.arange(42.0)[None] / 100
    kept = hiprune_kept(shallow, deep, cross_neighbours(((6, 7),), wrap=False), k=3, alpha=1.7)
    assert kept.tolist() == [[9, 10, 16]]


def test_layers_are_parameters() -> None:
    assert HiPrune(object_layer=2, deep_layer=3).needs == {"vision.received@2", "vision.received@3"}


def test_layouts_of_one_size_may_share_a_batch() -> None:
    check_batch(HiPrune(alpha=1.0), [scene(0), scene(1, rows=7, columns=6), scene(2, rows=3, columns=14)], k=15)


def test_first_crops_are_one_token_longer() -> None:
    assert crop_sizes(10, 4) == ((2, 3), (2, 2))
    assert crop_sizes(8, 4) == ((4, 2),)
    assert crop_sizes(3, 5) == ((3, 1),)


def test_unfilled_quota_goes_to_the_most_attended_of_the_rest() -> None:
    view = scene(0)
    attention = torch.full((42,), 0.001)
    attention[7:14] = 0.9  # the second of six crops earns far more than its seven tokens
    attention[[40, 20, 30]] = torch.tensor([0.004, 0.003, 0.002])
    order, unfilled = holov_order(view.tokens[None], attention[None], k=20, crops=6, alpha=0.0)
    assert int(unfilled) > 3
    first_unfilled = 20 - int(unfilled)
    assert set(range(7, 14)) <= set(order[0, :first_unfilled].tolist())
    rest = [i for i in attention.argsort(descending=True, stable=True).tolist() if i not in order[0, :first_unfilled]]
    assert order[0, first_unfilled:].tolist() == rest[: int(unfilled)]
    signals = {**view.signals, CLASS_ATTENTION: attention.expand(2, -1)}
    kept = HoloV(crops=6, alpha=0.0).select(replace(view, signals=signals), 20).anchors
    assert kept.tolist() == sorted(order[0].tolist())


def test_uniform_attention_spreads_the_budget_over_crops() -> None:
    order, unfilled = holov_order(torch.eye(12)[None], torch.full((1, 12), 0.05), k=6, crops=3, alpha=0.09)
    assert int(unfilled) == 0
    assert sorted(i // 4 for i in order[0].tolist()) == [0, 0, 1, 1, 2, 2]


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


def test_windows_end_at_tiles() -> None:
    assert windows(((2, 3), (1, 2)), 2).tolist() == [0, 0, 1, 0, 0, 1, 2, 2]


def test_every_window_gets_its_turn_before_any_gets_two() -> None:
    """Three windows of two tokens. The first window has the highest shallow attention, and still waits its turn."""
    shallow = torch.tensor([9.0, 8.0, 3.0, 1.0, 5.0, 4.0])
    deep = torch.tensor([9.0, 0.0, 0.0, 7.0, 0.0, 0.0])
    window = torch.tensor([0, 0, 1, 1, 2, 2])
    assert scans(deep, shallow, window, 0, 3).tolist() == [0, 2, 4]
    assert scans(deep, shallow, window, 0, 4).tolist() == [0, 1, 2, 4]
    assert scans(deep, shallow, window, 1, 3).tolist() == [0, 2, 3, 4], "what the windows took is not counted twice"


def test_the_same_tokens_on_another_grid_lie_in_other_windows() -> None:
    view = scene(3)
    turned = replace(view, layout=((view.layout[0][1], view.layout[0][0]),))
    assert not torch.equal(VScan(side=2).select(view, 20).anchors, VScan(side=2).select(turned, 20).anchors)


def flowcut_literal(view: TokenView, layers: int, k: int) -> list[int]:
    """The method as it is described, on a shrinking list of patches, in numpy."""
    kept = np.arange(view.tokens.shape[0])
    flow = np.zeros(len(kept))
    for layer in range(layers):
        attention, values, cls_value = (
            view.signals[f"vision.{kind}@{layer}"].double().numpy() for kind in ("cls_attention", "value", "cls_value")
        )
        itself = 1.0 - attention.sum(axis=1, keepdims=True)
        left = attention[:, kept]
        looked_at = (left / (left.sum(axis=1, keepdims=True) + itself)).mean(axis=0)
        looked_at /= looked_at.sum()
        alike = np.zeros(len(kept))
        for head, own in zip(values[:, kept], cls_value, strict=True):
            raised = np.exp(head @ own)
            alike += raised / (raised.sum() + np.exp(own @ own))
        alike /= alike.sum()
        score = (looked_at + alike) * np.abs(values.mean(axis=0)[kept]).sum(axis=1)
        flow = score if layer == 0 else 0.5 * flow + 0.5 * score
        remaining = layers - 1 - layer
        if remaining % 2:
            continue
        spare = len(kept) - k
        if remaining:
            entropy = -(looked_at * np.log(looked_at)).sum() / np.log(len(kept))
            spare = round(spare / np.sqrt(remaining) * (1 - entropy**2))
        best = np.sort(np.argsort(-flow, kind="stable")[: max(len(kept) - spare, k)])
        kept, flow = kept[best], flow[best]
    return kept.tolist()


@pytest.mark.parametrize("last_layer", [0, 1, 4, 21])
def test_it_agrees_with_the_description_flowcut(last_layer: int) -> None:
    for seed in range(3):
        view = scene(seed)
        for k in (3, 14, 30):
            assert FlowCut(last_layer).select(view, k).anchors.tolist() == flowcut_literal(view, last_layer + 1, k)


def test_a_patch_without_value_has_no_flow_however_much_it_is_looked_at() -> None:
    view = scene(7)
    attention, values = (view.signals[name].clone() for name in ("vision.cls_attention@0", "vision.value@0"))
    attention[:, 5] = 0.9
    attention[:, :5] *= 0.1
    attention[:, 6:] *= 0.1
    values[:, 5] = 0.0
    signals = {**view.signals, "vision.cls_attention@0": attention, "vision.value@0": values}
    n = view.tokens.shape[0]
    assert 5 not in FlowCut(0).select(replace(view, signals=signals), n - 1).anchors.tolist()
    values = torch.full_like(values, 2.0)
    signals = {**signals, "vision.value@0": values}
    assert FlowCut(0).select(replace(view, signals=signals), 1).anchors.tolist() == [5]


def test_it_needs_three_signals_of_every_block() -> None:
    assert len(FlowCut().needs) == 3 * 22
