from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.pact import PACT, bounded_centres, density_centres, importance
from tests.unit.selectors.layer_states import check_any_input, check_schedule, layer_state


def test_contract() -> None:
    check_any_input(PACT())
    check_schedule(PACT())
    assert PACT().schedule(576, 128, 28) == {3: 128}


def test_importance_is_the_answer_to_the_mean_query_times_length() -> None:
    state = layer_state(4, 5, seed=2)
    queries, keys = (state.signals[f"lm.bare_{name}"][:, state.image] for name in ("query", "key"))
    hidden = state.signals["lm.input"][state.image]
    expected = np.zeros(20)
    for head, query in enumerate(queries.double().numpy()):
        raised = np.exp(keys.double().numpy()[head // 2] @ query.mean(axis=0))  # two query heads share a key head
        expected += raised / raised.sum() / 4
    expected *= np.linalg.norm(hidden.double().numpy(), axis=1)
    np.testing.assert_allclose(importance(queries, keys, hidden).numpy(), expected, rtol=1e-5)


def test_centres_keep_their_distance_and_leave_nobody_far_away() -> None:
    points = np.random.default_rng(0).normal(size=(40, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    distance = 1.0 - points @ points.T
    order = np.random.default_rng(1).permutation(40)
    for bound in (0.0, 0.1, 0.4, 1.0, 2.0):
        centres = bounded_centres(distance, order, bound)
        apart = distance[np.ix_(centres, centres)] + 9 * np.eye(len(centres))
        assert apart.min() > bound
        assert (distance[:, centres].min(axis=1) <= max(bound, 1e-12)).all()
        assert centres == sorted(centres, key=order.tolist().index), "densest first"


def test_the_bound_is_the_largest_that_leaves_k_centres() -> None:
    """Three tight clusters at right angles: up to a bound of 1 each has its centre, its densest member."""
    angle = np.array([0.0, 0.1, 0.2, 0.0, 0.1, 0.2, 0.0, 0.1, 0.2])
    points = np.zeros((9, 6))
    for i, turn in enumerate(angle):
        points[i, i // 3 * 2 : i // 3 * 2 + 2] = np.cos(turn), np.sin(turn)
    distance = 1.0 - points @ points.T
    centres, bound = density_centres(distance, 3)
    assert sorted(centres) == [1, 4, 7]
    assert bound == pytest.approx(1.0, abs=1e-5)


def test_a_cluster_is_the_mean_of_its_members_and_of_what_comes_back() -> None:
    """Two directions of keys. The token that nobody asks for is dropped; it comes back to its cluster if allowed."""
    state = layer_state(1, 5, before=0, behind=0, width=2, heads=1)
    keys = torch.tensor([[[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [1.0, 0.05]]])
    signals = {
        "lm.key": keys,
        "lm.bare_key": torch.zeros(1, 5, 2),
        "lm.bare_query": torch.zeros(1, 5, 2),
        "lm.input": torch.tensor([[3.0], [3.0], [3.0], [3.0], [0.1]]).expand(5, 2),
    }
    state = replace(state, hidden=torch.zeros(5, 2), signals=signals)
    alone = PACT(keep=0.8, recovery=0.0).cut(state, 2)
    assert alone.mix is not None
    assert alone.mix.tolist() == [[0.5, 0.5, 0, 0, 0], [0, 0, 0.5, 0.5, 0]]
    back = PACT(keep=0.8).cut(state, 2)
    assert back.mix is not None
    torch.testing.assert_close(back.mix[0], torch.tensor([1, 1, 0, 0, 1]) / 3)


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SightlineError, match="full_layers"):
        PACT(full_layers=0)
