from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sightline.core.selection import TokenView
from sightline.errors import SightlineError
from sightline.selectors.flowcut import FlowCut
from tests.unit.selectors.contract import check_contract, scene


def literal(view: TokenView, layers: int, k: int) -> list[int]:
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


def test_contract() -> None:
    check_contract(FlowCut())
    check_contract(FlowCut(last_layer=0))


@pytest.mark.parametrize("last_layer", [0, 1, 4, 21])
def test_it_agrees_with_the_description(last_layer: int) -> None:
    for seed in range(3):
        view = scene(seed)
        for k in (3, 14, 30):
            assert FlowCut(last_layer).select(view, k).anchors.tolist() == literal(view, last_layer + 1, k)


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
    with pytest.raises(SightlineError, match="last_layer"):
        FlowCut(-1)
