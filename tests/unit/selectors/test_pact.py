from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sightline.core.selection import LayerState
from sightline.errors import SightlineError
from sightline.selectors.pact import PACT, bounded_centres, density_centres, importance
from tests.unit.selectors.layer_states import check_any_input, check_schedule, layer_state


def test_contract() -> None:
    check_any_input(PACT())
    check_schedule(PACT())
    assert PACT().schedule(576, 128, 28) == {3: 128}


def test_importance_is_the_answer_to_the_mean_query_times_length() -> None:
    state = layer_state(4, 5, seed=2)
    asking = range(int(state.image[-1]) + 1)  # as in the public code: what stands before the image asks and answers too
    queries, keys = (state.signals[f"lm.bare_{name}"][:, asking] for name in ("query", "key"))
    hidden = state.signals["lm.input"][state.image]
    expected = np.zeros(20)
    for head, query in enumerate(queries.double().numpy()):
        answers = keys.double().numpy()[head // 2] @ query.mean(axis=0)  # two query heads share a key head
        raised = np.exp(answers / np.sqrt(keys.shape[-1]))
        expected += (raised / raised.sum() / 4)[state.image.numpy()]
    expected *= np.linalg.norm(hidden.double().numpy(), axis=1)
    np.testing.assert_allclose(importance(queries, keys, hidden, state.image).numpy(), expected, rtol=1e-5)


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


def test_the_bound_is_as_wide_as_k_centres_allow() -> None:
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


def literal(state: LayerState, k: int) -> tuple[list[int], np.ndarray]:
    """The method as it is described, in numpy, with the bound searched for among the distances that occur."""
    image = state.image.numpy()
    n = len(image)
    queries, keys, rotated = (
        state.signals[name].double().numpy() for name in ("lm.bare_query", "lm.bare_key", "lm.key")
    )
    queries, keys, rotated = queries[:, : image[-1] + 1], keys[:, : image[-1] + 1], rotated[:, image]
    asked = np.zeros(n)
    for head, query in enumerate(queries):
        answers = keys[head // (len(queries) // len(keys))] @ query.mean(axis=0)
        raised = np.exp(answers / np.sqrt(keys.shape[-1]))
        asked += (raised / raised.sum())[image]
    score = asked * np.linalg.norm(state.signals["lm.input"].double().numpy()[image], axis=1)
    playing = sorted(np.argsort(-score, kind="stable")[: max(k, int(0.55 * n))].tolist())
    vectors = np.concatenate(list(rotated), axis=1)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    distance = 1.0 - vectors @ vectors.T
    np.fill_diagonal(distance, 0.0)
    density = {i: np.exp(-((distance[i, playing] / 2.0) ** 2)).sum() for i in playing}
    walk = sorted(playing, key=lambda i: -density[i])

    def centres(bound: float) -> list[int]:
        found: list[int] = []
        for i in walk:
            if all(distance[i, j] > bound for j in found):
                found.append(i)
        return found

    occurring = np.unique(distance[np.ix_(playing, playing)])
    crossing = next(index for index, bound in enumerate(occurring) if len(centres(bound)) < k)
    kept = sorted(centres((occurring[crossing - 1] + occurring[crossing]) / 2)[:k])
    mix = np.zeros((k, n))
    for i in range(n):
        nearest = int(distance[i, kept].argmin())
        if i in playing or distance[i, kept[nearest]] <= 1.5 * occurring[crossing]:
            mix[nearest, i] = 1.0
    return kept, mix / mix.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_the_description(seed: int) -> None:
    state = layer_state(6, 7, seed=seed)
    chosen = PACT().cut(state, 12)
    anchors, mix = literal(state, 12)
    assert chosen.anchors.tolist() == anchors
    assert chosen.mix is not None
    np.testing.assert_allclose(chosen.mix.numpy(), mix, atol=1e-6)


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SightlineError, match="full_layers"):
        PACT(full_layers=0)
