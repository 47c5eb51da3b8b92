from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.errors import SightlineError
from sightline.selectors.vlmpruner import VLMPruner, channel_cosine, fold, grid_places, grow, spread_pivots
from tests.unit.selectors.layer_states import check_any_input, check_schedule, layer_state


def literal(similarity: Tensor, place: Tensor, pivots: list[int], k: int, threshold: float, batch: int) -> list[int]:
    """The rounds as they are described, everything recomputed for every token."""
    kept = list(pivots)

    def redundancy(token: int) -> float:
        nearest = min(float((place[token] - place[s]).norm()) for s in kept)
        return max(float(similarity[token, s]) for s in kept) * (1 + 0.5 * nearest / (24 * math.sqrt(2)))

    while len(kept) < k:
        before = len(kept)
        candidates = sorted((i for i in range(len(similarity)) if i not in kept), key=redundancy)
        for start in range(0, len(candidates), batch):
            values = {token: redundancy(token) for token in candidates[start : start + batch]}
            passing = sorted((t for t in values if values[t] < threshold), key=lambda t: values[t])
            kept += passing[: k - len(kept)]
            if len(kept) == k or (start == 0 and not passing):
                break
        if len(kept) == before:
            break
        threshold += 0.1
    return sorted(kept)


def features(n: int, seed: int, common: float) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 16, generator=generator) + common * torch.randn(1, 16, generator=generator)


def test_contract() -> None:
    check_any_input(VLMPruner())
    check_schedule(VLMPruner())
    assert VLMPruner().schedule(576, 231, 32) == {1: 231}


@pytest.mark.parametrize(("seed", "common", "threshold"), [(0, 0.5, 0.3), (1, 1.0, 0.55), (2, 1.5, 0.6), (3, 2.0, 0.7)])
def test_rounds(seed: int, common: float, threshold: float) -> None:
    similarity = channel_cosine(features(72, seed, common), 256)
    place = grid_places(((24, 24),))[:72]
    pivots = torch.tensor([3, 40, 60, 17])
    for k in (10, 30, 55):
        ours = grow(similarity, place, pivots, k, threshold=threshold, batch=8, diagonal=24 * math.sqrt(2), fill=False)
        assert ours.tolist() == literal(similarity, place, pivots.tolist(), k, threshold, 8)


def test_a_budget_that_the_rounds_miss_is_filled() -> None:
    similarity = torch.ones(30, 30)
    arguments: dict[str, Any] = {"threshold": 0.8, "batch": 4, "diagonal": 10.0}
    pivots, place = torch.tensor([5, 9]), grid_places(((5, 6),))
    assert grow(similarity, place, pivots, 12, **arguments, fill=False).tolist() == [5, 9]
    filled = grow(similarity, place, pivots, 12, **arguments)
    assert len(filled) == 12
    assert {5, 9} <= set(filled.tolist())


def test_pivots_are_far_apart_and_distinct_even_among_duplicates() -> None:
    keys = torch.tensor([[0.0, 0.0], [9.0, 0.0], [9.0, 0.0], [0.0, 8.0], [0.1, 0.0]])
    assert spread_pivots(keys, 3).tolist() == [1, 3, 4]
    assert sorted(spread_pivots(torch.ones(5, 2), 5).tolist()) == [0, 1, 2, 3, 4]


def test_only_the_most_varying_channels_count() -> None:
    tokens = torch.zeros(4, 5)
    tokens[:, 0] = 100.0  # constant: says nothing
    tokens[:, 2] = torch.tensor([1.0, -1.0, 1.0, -1.0])
    assert channel_cosine(tokens, 1).tolist() == channel_cosine(tokens[:, 2:3], 1).tolist()


def test_blocks_stand_below_one_another() -> None:
    assert grid_places(((1, 2), (2, 2))).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]


def test_distance_uses_the_original_place_of_a_survivor() -> None:
    state = layer_state(6, 6, seed=1)
    alike = replace(state, hidden=1.0 + 0.01 * state.hidden)  # so alike that distance decides
    moved = replace(alike, source=torch.randperm(36, generator=torch.Generator().manual_seed(0)))
    assert VLMPruner().cut(alike, 12).anchors.tolist() != VLMPruner().cut(moved, 12).anchors.tolist()


def test_discarded_tokens_flow_into_the_most_similar_kept_one() -> None:
    similarity = torch.tensor([[1.0, 0.2, 0.6, 0.3], [0.2, 1.0, 0.1, 0.1], [0.6, 0.1, 1.0, 0.0], [0.3, 0.1, 0.0, 1.0]])
    mix = fold(similarity, torch.tensor([0, 1]), 0.3)
    expected = torch.tensor([[0.3, 0.0, 0.7 * 0.6 / 0.9, 0.7 * 0.3 / 0.9], [0.0, 1.0, 0.0, 0.0]])
    torch.testing.assert_close(mix, expected)


def test_refuses_bad_arguments() -> None:
    with pytest.raises(SightlineError, match="vlmpruner"):
        VLMPruner(batch=0)
