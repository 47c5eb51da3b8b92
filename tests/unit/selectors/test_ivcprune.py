from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sightline.core.selection import LayerState
from sightline.errors import SightlineError
from sightline.selectors.ivcprune import IVCPrune
from tests.unit.selectors.layer_states import check_any_input, check_schedule, layer_state


def literal(state: LayerState, k: int, coordinates: float = 1 / 3) -> list[int]:
    """The method as it is described, token by token, in numpy."""
    values = state.signals["lm.value"].double().numpy()
    cos, sin = state.signals["lm.rotary"].double().numpy()
    image = state.image.numpy()
    words = np.arange(image[-1] + 3, values.shape[1])
    alike = np.zeros((values.shape[1], values.shape[1]))
    for head in values:
        products = np.exp(head @ head.T / np.sqrt(head.shape[-1]))
        alike += products / products.sum(axis=1, keepdims=True) / len(values)
    seeds = image[np.argsort(-alike[words].mean(axis=0)[image], kind="stable")[: max(1, round(len(image) / 100))]]
    score = alike[np.concatenate([seeds, words])].mean(axis=0)
    each = round(k * coordinates / 2)
    kept: list[int] = []
    for table in (cos, sin):
        kept += [p for p in image[np.argsort(-table[image].mean(axis=1), kind="stable")[:each]] if p not in kept]
    kept += [p for p in seeds if p not in kept]
    kept += [p for p in image[np.argsort(-score[image], kind="stable")] if p not in kept]
    return sorted(int(p - image[0]) for p in kept[:k])


def test_contract() -> None:
    check_any_input(IVCPrune())
    check_schedule(IVCPrune())
    assert IVCPrune().schedule(576, 192, 32) == {15: 192}


@pytest.mark.parametrize(
    ("depth", "layers", "published"), [(0.57, 28, 16), (0.61, 36, 22), (0.07, 28, 2), (0.63, 27, 17)]
)
def test_the_depths_named_for_other_models_are_the_layers_published_for_them(
    depth: float, layers: int, published: int
) -> None:
    assert f"{published} of {layers}" in " ".join((IVCPrune.__doc__ or "").split())
    assert IVCPrune(depth=depth).schedule(576, 192, layers) == {published - 1: 192}


@pytest.mark.parametrize("k", [3, 12, 30, 90])
def test_it_agrees_with_the_description(k: int) -> None:
    state = layer_state(12, 12, seed=k)
    assert IVCPrune().cut(state, k).anchors.tolist() == literal(state, k)


def test_all_coordinates_depend_on_positions_alone() -> None:
    first, second = layer_state(6, 7, seed=1), layer_state(6, 7, seed=2)
    alone = IVCPrune(coordinates=1.0)
    both = {"lm.value": second.signals["lm.value"], "lm.rotary": first.signals["lm.rotary"]}
    kept = alone.cut(first, 4).anchors
    assert torch.equal(kept, alone.cut(replace(first, signals=both), 4).anchors)
    cos, sin = first.signals["lm.rotary"][:, first.image].mean(dim=-1)
    assert set(kept.tolist()) >= {int(cos.argmax()), int(sin.argmax())}


def test_without_coordinates_the_token_that_equals_the_only_word_comes_first() -> None:
    state = layer_state(3, 3, before=1, behind=1)
    values = torch.eye(11)[None] * 4.0
    values[0, 10] = values[0, 1 + 6]  # the word's value is that of visual token 6
    state = replace(state, signals={**state.signals, "lm.value": values})
    assert IVCPrune(coordinates=0.0).cut(state, 1).anchors.tolist() == [6]


def test_shares_outside_are_refused() -> None:
    with pytest.raises(SightlineError, match="coordinates"):
        IVCPrune(coordinates=1.5)
