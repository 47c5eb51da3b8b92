from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from sightline.selectors.v2drop import V2Drop, variation
from tests.unit.selectors.layer_states import check_any_input, check_schedule, layer_state


def test_contract() -> None:
    check_any_input(V2Drop())
    check_schedule(V2Drop())


def test_cuts_fall_where_they_are_published_for_32_and_28_layers() -> None:
    assert V2Drop().schedule(512, 64, 32) == {2: 256, 16: 128, 21: 64}
    assert V2Drop().schedule(512, 64, 28) == {2: 256, 15: 128, 21: 64}
    assert V2Drop().schedule(512, 64, 64) == {5: 256, 33: 128, 43: 64}, "other depths: in proportion to 32"


def test_the_tokens_that_moved_farthest_stay() -> None:
    """Three of six tokens move, by lengths 5, 13 and 1 that can be read off their differences."""
    state = layer_state(2, 3, before=2, behind=2, width=2)
    given = torch.ones(10, 2)
    hidden = given.clone()
    hidden[2 + 1] += torch.tensor([3.0, 4.0])
    hidden[2 + 4] += torch.tensor([5.0, -12.0])
    hidden[2 + 5] += torch.tensor([1.0, 0.0])
    hidden[0] += 100.0  # text is not looked at
    state = replace(state, hidden=hidden, signals={"lm.input": given})
    assert variation(given, hidden, state.image).tolist() == [0.0, 5.0, 0.0, 0.0, 13.0, 1.0]
    assert V2Drop().cut(state, 2).anchors.tolist() == [1, 4]
    assert V2Drop().cut(state, 4).anchors.tolist() == [0, 1, 4, 5], "equal variations go to the lower index"


def test_it_agrees_with_numpy_on_random_states() -> None:
    state = layer_state(6, 7, seed=3)
    moved = (state.hidden - state.signals["lm.input"]).numpy()[state.image.numpy()]
    order = np.argsort(-np.sqrt((moved.astype(np.float64) ** 2).sum(axis=1)))
    assert set(V2Drop().cut(state, 9).anchors.tolist()) == set(order[:9].tolist())
