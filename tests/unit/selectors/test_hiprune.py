from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sightline.core.selection import TokenView
from sightline.errors import SightlineError
from sightline.selectors.hiprune import HiPrune, cross_neighbours, hiprune_kept
from tests.unit.selectors.contract import check_batch, check_contract, scene


def test_contract() -> None:
    check_contract(HiPrune())
    check_contract(HiPrune(alpha=1.0, wrap=False))


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


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(SightlineError, match="alpha"):
        HiPrune(alpha=-0.1)
