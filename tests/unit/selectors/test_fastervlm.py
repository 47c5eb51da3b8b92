from __future__ import annotations

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.fastervlm import CLASS_ATTENTION, FasterVLM
from tests.unit.selectors.contract import check_contract, scene
from tests.unit.selectors.views import view


def test_contract() -> None:
    check_contract(FasterVLM())


def test_heads_are_averaged_and_ties_go_to_the_lower_index() -> None:
    heads = torch.tensor([[0.1, 0.4, 0.0, 0.2, 0.2], [0.3, 0.0, 0.4, 0.2, 0.0]])
    selection = FasterVLM().select(view(torch.zeros(5, 2), signals={CLASS_ATTENTION: heads}), 2)
    assert selection.anchors.tolist() == [0, 1]
    assert selection.mix is None


def test_views_of_different_size_cannot_be_batched() -> None:
    with pytest.raises(SightlineError, match="different shapes"):
        FasterVLM().select_many([scene(0), scene(0, rows=3)], 2)
