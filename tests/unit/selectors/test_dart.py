from __future__ import annotations

import pytest
import torch

from sightline.core.selection import LayerState
from sightline.errors import SightlineError
from sightline.selectors.dart import Dart
from tests.unit.selectors.layer_states import check_any_input, check_schedule, layer_state


def literal(state: LayerState, quotas: list[int], image_pivots: int = 4, text_pivots: int = 4) -> list[int]:
    """The method as it is described, with a set for the pivots and a pool of free positions, one token at a time."""
    size = state.signals["lm.key"].abs().sum(dim=(0, 2)).tolist()
    image = state.image.tolist()
    behind = range(image[-1] + 1, len(size))
    visual = sorted(image, key=lambda p: -size[p])[:image_pivots]
    text = sorted(behind, key=lambda p: -size[p])[:text_pivots]
    pool = [p for p in image if p not in visual]
    kept = list(visual)
    normed = state.signals["lm.normed"].double()
    for pivot, quota in zip(set(visual + text), quotas, strict=True):
        pool.sort(key=lambda p: float(torch.cosine_similarity(normed[pivot], normed[p], dim=0)))
        kept += pool[:quota]
        pool = pool[quota:]
    return sorted(p - image[0] for p in kept)


def test_contract() -> None:
    check_any_input(Dart())
    check_schedule(Dart())
    assert Dart().schedule(576, 128, 32) == {1: 128}


@pytest.mark.parametrize("before", [5, 35, 1000])
def test_public_counts_give_every_pivot_the_same(before: int) -> None:
    state = layer_state(12, 12, before=before, behind=9, seed=before)
    for t in (1, 4, 9):
        assert Dart().cut(state, 4 + 8 * t).anchors.tolist() == literal(state, [t] * 8)


def test_other_counts_give_the_first_visited_pivots_one_more() -> None:
    state = layer_state(12, 12, behind=9, seed=3)
    assert Dart().cut(state, 4 + 8 * 4 + 3).anchors.tolist() == literal(state, [5, 5, 5, 4, 4, 4, 4, 4])


def test_small_budgets_keep_the_largest_pivots() -> None:
    state = layer_state(6, 6, seed=4)
    size = state.signals["lm.key"][:, state.image].abs().sum(dim=(0, 2))
    assert set(Dart().cut(state, 3).anchors.tolist()) == set(size.topk(3).indices.tolist())


def test_refuses_no_pivot() -> None:
    with pytest.raises(SightlineError, match="image_pivots"):
        Dart(image_pivots=0)
