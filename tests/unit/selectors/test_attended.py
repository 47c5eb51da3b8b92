"""Methods that keep what the vision tower attends to: FasterVLM, HiPrune, HoloV, VisPruner, VScan, FlowCut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from sightline.core.selection import TokenView
from sightline.selectors.fastervlm import CLASS_ATTENTION, FasterVLM
from sightline.selectors.flowcut import FlowCut
from sightline.selectors.hiprune import HiPrune, cross_neighbours, hiprune_kept
from sightline.selectors.holov import HoloV, crop_sizes, holov_order
from sightline.selectors.vispruner import VisPruner, thin, vispruner_kept
from sightline.selectors.vscan import VScan, scans, windows
from tests.refusals import Refused
from tests.unit.selectors.views import check_batch, scene, view


def test_heads_are_averaged_and_ties_go_to_the_lower_index() -> None:
    heads = torch.tensor([[0.1, 0.4, 0.0, 0.2, 0.2], [0.3, 0.0, 0.4, 0.2, 0.0]])
    selection = FasterVLM().select(view(torch.zeros(5, 2), signals={CLASS_ATTENTION: heads}), 2)
    assert (selection.anchors.tolist(), selection.mix) == ([0, 1], None)


def test_views_of_different_size_cannot_be_batched(refused: Refused) -> None:
    refused("different shapes", FasterVLM().select_many, [scene(0), scene(0, rows=3)], 2)


def test_neighbours_stay_inside_their_tile_and_their_row_unless_they_wrap() -> None:
    for layout, wrap, token, expected in [
        (((3, 4),), True, 4, [4, 3, 5, 0, 8]),
        (((3, 4),), True, 0, [0, 0, 1, 0, 4]),
        (((3, 4),), False, 4, [4, 4, 5, 0, 8]),
        (((3, 4),), False, 7, [7, 6, 7, 3, 11]),
        (((2, 2), (2, 3)), False, 3, [3, 2, 3, 1, 3]),
        (((2, 2), (2, 3)), False, 4, [4, 4, 5, 4, 7]),
    ]:
        assert cross_neighbours(layout, wrap=wrap)[token].tolist() == expected, (layout, wrap, token)


def test_anchor_and_its_cross_come_first_then_the_deep_layer() -> None:
    shallow, deep = torch.eye(42)[9], torch.arange(42.0) / 100
    signals = {**scene(0).signals, "vision.received@8": shallow, "vision.received@-2": deep}
    kept = HiPrune(alpha=0.5).select(replace(scene(0), signals=signals), 8).anchors
    assert kept.tolist() == [2, 8, 9, 10, 16, 39, 40, 41]
    # More neighbours than budget: anchors, then deep attention among them.
    few = hiprune_kept(shallow[None], deep[None], cross_neighbours(((6, 7),), wrap=False), k=3, alpha=1.7)
    assert few.tolist() == [[9, 10, 16]]


def test_hiprunes_layers_are_parameters_and_layouts_of_one_size_share_a_batch() -> None:
    assert HiPrune(object_layer=2, deep_layer=3).needs == {"vision.received@2", "vision.received@3"}
    check_batch(HiPrune(alpha=1.0), [scene(0), scene(1, rows=7, columns=6), scene(2, rows=3, columns=14)], k=15)


def test_crops_share_the_budget_evenly_where_attention_is_even() -> None:
    assert crop_sizes(10, 4) == ((2, 3), (2, 2)), "the first ones are one token longer"
    assert crop_sizes(8, 4) == ((4, 2),)
    assert crop_sizes(3, 5) == ((3, 1),)
    order, unfilled = holov_order(torch.eye(12)[None], torch.full((1, 12), 0.05), k=6, crops=3, alpha=0.09)
    assert int(unfilled) == 0
    assert sorted(i // 4 for i in order[0].tolist()) == [0, 0, 1, 1, 2, 2], "uniform attention"


def test_what_a_crop_cannot_fill_goes_to_the_most_attended_of_the_rest() -> None:
    attention = torch.full((42,), 0.001)
    attention[7:14] = 0.9  # the second of six crops earns far more than its seven tokens
    attention[[40, 20, 30]] = torch.tensor([0.004, 0.003, 0.002])
    order, unfilled = holov_order(scene(0).tokens[None], attention[None], k=20, crops=6, alpha=0.0)
    assert int(unfilled) > 3
    earned, rest = order[0, : 20 - int(unfilled)].tolist(), order[0, 20 - int(unfilled) :].tolist()
    assert set(range(7, 14)) <= set(earned)
    assert rest == [i for i in attention.argsort(descending=True, stable=True).tolist() if i not in earned][: len(rest)]
    shown = replace(scene(0), signals={**scene(0).signals, CLASS_ATTENTION: attention.expand(2, -1)})
    assert HoloV(crops=6, alpha=0.0).select(shown, 20).anchors.tolist() == sorted(earned + rest)


def test_important_tokens_are_never_thinned() -> None:
    attention = scene(3).signals["vision.cls_attention@-2"].mean(dim=0)
    assert set(attention.topk(6).indices.tolist()) <= set(VisPruner().select(scene(3), 12).anchors.tolist())


def test_of_the_other_tokens_a_duplicate_goes_first() -> None:
    similarity = torch.eye(6)
    similarity[2, 5] = similarity[5, 2] = 0.99
    # Position 2 of the pool is even (token 2), token 5 is at an odd position.
    assert thin(similarity[None], torch.tensor([[0, 1, 2, 5, 4, 3]]), 5)[0].tolist() == [0, 4, 1, 5, 3]


def test_an_odd_pool_still_gives_k_distinct_tokens() -> None:
    for k in (9, 10, 11):  # of 33, with half of k chosen by attention: the pool of the rest is odd for some of them
        assert vispruner_kept(torch.randn(1, 33, 8), torch.rand(1, 33), k, k // 2)[0].unique().shape == (k,)


def test_every_window_gets_its_turn_before_any_gets_two() -> None:
    """Three windows of two tokens. The first window has the highest shallow attention, and still waits its turn."""
    shallow, deep = torch.tensor([9.0, 8.0, 3.0, 1.0, 5.0, 4.0]), torch.tensor([9.0, 0.0, 0.0, 7.0, 0.0, 0.0])
    window = torch.tensor([0, 0, 1, 1, 2, 2])
    assert scans(deep, shallow, window, 0, 3).tolist() == [0, 2, 4]
    assert scans(deep, shallow, window, 0, 4).tolist() == [0, 1, 2, 4]
    assert scans(deep, shallow, window, 1, 3).tolist() == [0, 2, 3, 4], "what the windows took is not counted twice"


def test_windows_end_at_tiles_and_what_lies_in_them_follows_the_grid() -> None:
    assert windows(((2, 3), (1, 2)), 2).tolist() == [0, 0, 1, 0, 0, 1, 2, 2]
    turned = replace(scene(3), layout=((7, 6),))  # the same tokens on another grid lie in other windows
    assert not torch.equal(VScan(side=2).select(scene(3), 20).anchors, VScan(side=2).select(turned, 20).anchors)


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


def test_flowcut_agrees_with_its_description_and_reads_three_signals_of_every_block() -> None:
    for last_layer in (0, 1, 4, 21):
        for seed in range(3):
            shown = scene(seed)
            for k in (3, 14, 30):
                kept = FlowCut(last_layer).select(shown, k).anchors.tolist()
                assert kept == flowcut_literal(shown, last_layer + 1, k), (last_layer, seed, k)
    assert len(FlowCut().needs) == 3 * 22


def test_a_patch_without_value_has_no_flow_however_much_it_is_looked_at() -> None:
    shown, name = scene(7), "vision.cls_attention@0"
    attention, values = shown.signals[name] * 0.1, shown.signals["vision.value@0"].clone()
    attention[:, 5], values[:, 5] = 0.9, 0.0
    silent, alike = (
        replace(shown, signals={**shown.signals, name: attention, "vision.value@0": each})
        for each in (values, torch.full_like(values, 2.0))
    )
    assert 5 not in FlowCut(0).select(silent, len(shown.tokens) - 1).anchors.tolist()
    assert FlowCut(0).select(alike, 1).anchors.tolist() == [5]
