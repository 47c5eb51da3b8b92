from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.fastervlm import CLASS_ATTENTION
from sightline.selectors.holov import HoloV, crop_sizes, holov_order
from tests.unit.selectors.contract import check_contract, scene


def test_contract() -> None:
    check_contract(HoloV())
    check_contract(HoloV(crops=5))
    check_contract(HoloV(crops=100))


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


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(SightlineError, match="crops"):
        HoloV(crops=0)
