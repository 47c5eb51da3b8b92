from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.nuwa import Nuwa, plane, regional_anchors, spatial_weights
from tests.unit.selectors.contract import check_batch, check_contract, check_selection, scene


def test_contract() -> None:
    check_contract(Nuwa())
    check_contract(Nuwa(per_region=3, reach=2.0, percentile=0.0))


def test_odd_sides_leave_smaller_regions() -> None:
    regions = plane(((3, 3),)).regions
    assert regions.tolist() == [[0, 1, 3, 4], [2, 9, 5, 9], [6, 7, 9, 9], [8, 9, 9, 9]]


def test_anchors_spread_over_regions_before_any_region_gives_two() -> None:
    importance = torch.zeros(1, 16)
    importance[0, [0, 1, 4, 5]] = torch.tensor([4.0, 3.0, 2.0, 1.0])  # all in the first region
    regions = plane(((4, 4),)).regions
    assert regional_anchors(importance, regions, 4, per_region=1).tolist() == [[0, 2, 8, 10]]
    assert regional_anchors(importance, regions, 4, per_region=4).tolist() == [[0, 1, 4, 5]]
    assert regional_anchors(importance, regions, 5, per_region=1).tolist() == [[0, 1, 2, 3, 8]]  # two each are needed


def test_strong_anchors_stand_alone_and_weak_ones_absorb_within_reach() -> None:
    where = plane(((1, 4),))
    importance = torch.tensor([[0.4, 0.1, 0.1, 0.2]])
    anchors = torch.tensor([[0, 3]])
    mix = spatial_weights(torch.ones(1, 4, 2), importance, anchors, where, reach=2.0, percentile=0.55)[0]
    assert mix[0].tolist() == [1.0, 0.0, 0.0, 0.0]
    # Alike features: weights 1 - distance / 2 = (0, 0, 1/2, 1), divided by their sum 3/2; then the own weight is 1.
    torch.testing.assert_close(mix[1], torch.tensor([0.0, 0.0, 1 / 3, 1.0]))


def test_tiles_absorb_nothing_from_one_another() -> None:
    view = replace(scene(0, rows=4, columns=6), layout=((3, 4), (3, 4)))
    selection = Nuwa(percentile=1.0, reach=math.inf).select(view, 8)
    check_selection(selection, 24, 8)
    assert selection.mix is not None
    for anchor, row in zip(selection.anchors.tolist(), selection.mix, strict=True):
        other_tile = slice(12, 24) if anchor < 12 else slice(0, 12)
        assert not row[other_tile].any()


def test_layers_are_parameters_and_the_merge_precedes_the_projector() -> None:
    selector = Nuwa(first_layer=-2, last_layer=-1)
    assert "vision.hidden_mean@-2:-1" in selector.needs
    signals = {**scene(0).signals, "vision.hidden_mean@-2:-1": torch.randn(42, 4)}
    view = replace(scene(0), signals=signals)
    assert selector.select(view, 9).merge_at == "vision"
    check_batch(selector, [view, view], k=9)


def test_layouts_of_one_size_may_share_a_batch() -> None:
    check_batch(Nuwa(), [scene(0), scene(1, rows=7, columns=6), scene(2, rows=3, columns=14)], k=15)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(SightlineError, match="per_region"):
        Nuwa(per_region=5)
    with pytest.raises(SightlineError, match="reach"):
        Nuwa(reach=0.0)
