"""Methods that fold rejected tokens into kept ones between or before layers: SparseVLM, VLM-Pruner, PACT, PruneSID."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sightline.core.selection import LayerState, TokenView
from sightline.selectors.pact import PACT, bounded_centres, density_centres, importance
from sightline.selectors.prunesid import PruneSID, limits, principal_groups, quotas, surviving
from sightline.selectors.recycling import cluster_count, density_peaks, recycled_count
from sightline.selectors.sparsevlm import SparseVLM, kept_count, raters
from sightline.selectors.vlmpruner import VLMPruner, channel_cosine, fold, grid_places, grow, spread_pivots
from tests.unit.selectors.views import layer_state, mix_of, scene


def test_sparsevlms_published_settings_come_back() -> None:
    for *budgets, k in [(300, 200, 110, 113), (303, 110, 36, 39), (238, 48, 26, 27), (66, 30, 17, 18)]:
        schedule, n = SparseVLM().schedule(576, k, 32), 576
        assert list(schedule) == [2, 6, 15]
        for budget, count in zip(budgets, schedule.values(), strict=True):
            assert count == budget + cluster_count(n, budget)
            assert kept_count(n, count) == budget
            n = count


def test_sparsevlm_cuts_shallow_models_three_times_too() -> None:
    for layers, cuts in [(4, [0, 1, 2]), (5, [0, 1, 2]), (28, [2, 6, 15])]:
        assert list(SparseVLM().schedule(64, 20, layers)) == cuts


def test_centroids_are_part_of_the_budget() -> None:
    for n in (2, 40, 300, 576):
        for k in range(1, n):
            kept = kept_count(n, k)
            assert 1 <= kept <= k
            assert k - kept <= recycled_count(n, kept) <= n - kept
            # Only budgets that the recycling rule would overrun on its own, or leave no kept token in, depart from it.
            assert kept + cluster_count(n, kept) == k or k <= cluster_count(n, 1)


def test_clusters_of_well_separated_points() -> None:
    generator = torch.Generator().manual_seed(1)
    group = torch.arange(30) % 3
    points = torch.eye(3)[group] * 50 + torch.randn(30, 3, generator=generator)
    centres, assignment = density_peaks(points, 3, torch.rand(30, generator=generator))
    assert sorted(group[centres].tolist()) == [0, 1, 2]
    assert torch.equal(group[centres][assignment], group)


def test_a_centroid_is_the_mean_of_its_cluster_and_anchored_at_its_centre() -> None:
    selection, kept = SparseVLM().cut(layer_state(15, 20, behind=8), 60), kept_count(300, 60)
    centroids, anchors = mix_of(selection)[kept:], selection.anchors.tolist()
    sizes = (centroids > 0).sum(dim=-1, keepdim=True)
    torch.testing.assert_close(centroids, (centroids > 0) / (sizes + 1e-6))
    assert bool(((centroids > 0).sum(dim=0) <= 1).all())
    assert not set(anchors[kept:]) & set(anchors[:kept])
    assert int(sizes.sum()) == recycled_count(300, kept)


def test_raters_are_words_above_the_mean_and_all_words_when_none_is() -> None:
    embeds = torch.tensor([[1.0, 0.0], [1.0, 0.1], [3.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    assert raters(embeds, slice(0, 2), slice(2, 5)).tolist() == [0]
    assert raters(torch.ones(5, 2), slice(0, 2), slice(2, 5)).tolist() == [0, 1, 2]


def test_raters_of_a_later_cut_may_see_the_whole_image() -> None:
    state = layer_state(4, 5, before=3, behind=7)
    attention = state.signals["lm.attention"]
    lead, words = state.signals["lm.embeds"][:3], state.signals["lm.embeds"][-7:]
    kept = kept_count(20, 9)
    for visual_count, word in ((20, 0), (200, 3)):  # the survivors point at word 0, the image they come from at word 3
        embeds = torch.cat((lead, 4 * words[word].expand(visual_count, -1), words))
        selection = SparseVLM().cut(replace(state, signals={"lm.embeds": embeds, "lm.attention": attention}), 9)
        favourites = attention[:, 3 + 20 + word, 3:23].mean(dim=0).topk(kept).indices
        assert selection.anchors[:kept].tolist() == sorted(favourites.tolist())


def test_noise_depends_on_seed_and_key_alone() -> None:
    state = layer_state(15, 20, kind="duplicates")  # equal densities: the noise decides which twin is a centre
    first = SparseVLM().cut(state, 60).anchors
    assert torch.equal(first, SparseVLM().cut(state, 60).anchors)
    assert not torch.equal(first, SparseVLM(seed=18).cut(state, 60).anchors)
    assert not torch.equal(first, SparseVLM().cut(replace(state, key="another"), 60).anchors)


def grown_literal(
    similarity: Tensor, place: Tensor, pivots: list[int], k: int, threshold: float, batch: int
) -> list[int]:
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


@pytest.mark.parametrize(("seed", "common", "threshold"), [(0, 0.5, 0.3), (1, 1.0, 0.55), (2, 1.5, 0.6), (3, 2.0, 0.7)])
def test_vlmpruners_rounds_are_those_of_its_description(seed: int, common: float, threshold: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(72, 16, generator=generator) + common * torch.randn(1, 16, generator=generator)
    similarity, place = channel_cosine(features, 256), grid_places(((24, 24),))[:72]
    pivots = torch.tensor([3, 40, 60, 17])
    for k in (10, 30, 55):
        ours = grow(similarity, place, pivots, k, threshold=threshold, batch=8, diagonal=24 * math.sqrt(2), fill=False)
        assert ours.tolist() == grown_literal(similarity, place, pivots.tolist(), k, threshold, 8)


def test_a_budget_that_the_rounds_miss_is_filled() -> None:
    arguments: dict[str, Any] = {"threshold": 0.8, "batch": 4, "diagonal": 10.0}
    alike, place, pivots = torch.ones(30, 30), grid_places(((5, 6),)), torch.tensor([5, 9])
    assert grow(alike, place, pivots, 12, **arguments, fill=False).tolist() == [5, 9]
    filled = grow(alike, place, pivots, 12, **arguments).tolist()
    assert len(filled) == 12
    assert {5, 9} <= set(filled)


def test_pivots_are_far_apart_and_distinct_even_among_duplicates() -> None:
    keys = torch.tensor([[0.0, 0.0], [9.0, 0.0], [9.0, 0.0], [0.0, 8.0], [0.1, 0.0]])
    assert spread_pivots(keys, 3).tolist() == [1, 3, 4]
    assert sorted(spread_pivots(torch.ones(5, 2), 5).tolist()) == [0, 1, 2, 3, 4]


def test_only_the_most_varying_channels_count() -> None:
    tokens = torch.zeros(4, 5)
    tokens[:, 0] = 100.0  # constant: says nothing
    tokens[:, 2] = torch.tensor([1.0, -1.0, 1.0, -1.0])
    assert channel_cosine(tokens, 1).tolist() == channel_cosine(tokens[:, 2:3], 1).tolist()


def test_distance_uses_the_original_place_of_a_survivor_with_blocks_below_one_another() -> None:
    below = [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
    assert grid_places(((1, 2), (2, 2))).tolist() == below
    state = layer_state(6, 6, seed=1)
    alike = replace(state, hidden=1.0 + 0.01 * state.hidden)  # so alike that distance decides
    moved = replace(alike, source=torch.randperm(36, generator=torch.Generator().manual_seed(0)))
    assert VLMPruner().cut(alike, 12).anchors.tolist() != VLMPruner().cut(moved, 12).anchors.tolist()


def test_discarded_tokens_flow_into_the_most_similar_kept_one() -> None:
    similarity = torch.tensor([[1.0, 0.2, 0.6, 0.3], [0.2, 1.0, 0.1, 0.1], [0.6, 0.1, 1.0, 0.0], [0.3, 0.1, 0.0, 1.0]])
    mix = fold(similarity, torch.tensor([0, 1]), 0.3)
    expected = torch.tensor([[0.3, 0.0, 0.7 * 0.6 / 0.9, 0.7 * 0.3 / 0.9], [0.0, 1.0, 0.0, 0.0]])
    torch.testing.assert_close(mix, expected)


def asked_for(state: LayerState) -> np.ndarray:
    """(N,) the answers to the mean query, times length. What stands before the image asks and answers too, as in the
    public code; two query heads share a key head."""
    image = state.image.numpy()
    queries, keys = (state.signals[f"lm.bare_{name}"].double().numpy()[:, : image[-1] + 1] for name in ("query", "key"))
    asked = np.zeros(len(image))
    for head, query in enumerate(queries):
        answers = keys[head // (len(queries) // len(keys))] @ query.mean(axis=0)
        raised = np.exp(answers / np.sqrt(keys.shape[-1]))
        asked += (raised / raised.sum() / len(queries))[image]
    return asked * np.linalg.norm(state.signals["lm.input"].double().numpy()[image], axis=1)


def test_importance_is_the_answer_to_the_mean_query_times_length() -> None:
    state = layer_state(4, 5, seed=2)
    asking = range(int(state.image[-1]) + 1)
    queries, keys = (state.signals[f"lm.bare_{name}"][:, asking] for name in ("query", "key"))
    found = importance(queries, keys, state.signals["lm.input"][state.image], state.image)
    np.testing.assert_allclose(found.numpy(), asked_for(state), rtol=1e-5)


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
    points = np.zeros((9, 6))
    for i, turn in enumerate([0.0, 0.1, 0.2] * 3):
        points[i, i // 3 * 2 : i // 3 * 2 + 2] = np.cos(turn), np.sin(turn)
    centres, bound = density_centres(1.0 - points @ points.T, 3)
    assert sorted(centres) == [1, 4, 7]
    assert bound == pytest.approx(1.0, abs=1e-5)


def test_a_cluster_is_the_mean_of_its_members_and_of_what_comes_back() -> None:
    """Two directions of keys. The token that nobody asks for is dropped; it comes back to its cluster if allowed."""
    nothing = torch.zeros(1, 5, 2)
    signals = {
        "lm.key": torch.tensor([[[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [1.0, 0.05]]]),
        "lm.bare_key": nothing,
        "lm.bare_query": nothing,
        "lm.input": torch.tensor([[3.0], [3.0], [3.0], [3.0], [0.1]]).expand(5, 2),
    }
    state = replace(layer_state(1, 5, before=0, behind=0), hidden=torch.zeros(5, 2), signals=signals)
    alone = mix_of(PACT(keep=0.8, recovery=0.0).cut(state, 2))
    assert alone.tolist() == [[0.5, 0.5, 0, 0, 0], [0, 0, 0.5, 0.5, 0]]
    torch.testing.assert_close(mix_of(PACT(keep=0.8).cut(state, 2))[0], torch.tensor([1, 1, 0, 0, 1]) / 3)


def pact_literal(state: LayerState, k: int) -> tuple[list[int], np.ndarray]:
    """The method as it is described, in numpy, with the bound searched for among the distances that occur."""
    image = state.image.numpy()
    n, score = len(image), asked_for(state)
    playing = sorted(np.argsort(-score, kind="stable")[: max(k, int(0.55 * n))].tolist())
    vectors = np.concatenate(list(state.signals["lm.key"].double().numpy()[:, image]), axis=1)
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


def test_pact_agrees_with_its_description() -> None:
    for seed in range(4):
        state = layer_state(6, 7, seed=seed)
        chosen = PACT().cut(state, 12)
        anchors, mix = pact_literal(state, 12)
        assert chosen.anchors.tolist() == anchors
        np.testing.assert_allclose(mix_of(chosen).numpy(), mix, atol=1e-6)


def prunesid_literal(view: TokenView, k: int) -> list[int]:
    """The method as it is described, group by group, in numpy."""
    features = view.signals["vision.hidden@-2"].double().numpy()
    score = view.signals["vision.cls_attention@-2"].double().numpy().sum(axis=0)
    n, count = len(features), max(1, (k + 1) // 4)
    columns = 1.0 / (1.0 + np.exp(-features.T))
    _, _, directions = np.linalg.svd(columns - columns.mean(axis=0), full_matrices=False)
    group = np.abs(directions[:count]).argmax(axis=0)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    alike = unit @ unit.T
    limit = (k + 1) / 32 * alike[np.triu_indices(n, 1)].mean()
    members: list[list[int]] = []
    survived: list[int] = []
    for g in range(count):
        pool = [int(i) for i in np.argsort(-score, kind="stable") if group[i] == g]
        left: list[int] = []
        for i in pool:
            if all(alike[i, j] <= limit for j in left):
                left.append(i)
        members.append(left + [i for i in pool if i not in left])
        survived.append(len(left))
    rest = k - sum(bool(pool) for pool in members)
    upto = [0, *(round(rest * part / sum(survived)) for part in np.cumsum(survived))]
    most = [min(count, 5 * math.ceil((k + 1) / 64)) for count in survived]
    while sum(most) < min(k + 1, n):
        most = [min(count + 1, len(pool)) for count, pool in zip(most, members, strict=True)]
    wanted = [int(bool(pool)) + upto[g + 1] - upto[g] for g, pool in enumerate(members)]
    allowed = [min(pair) for pair in zip(wanted, most, strict=True)]
    for g in sorted(range(count), key=lambda g: -survived[g]):
        allowed[g] += min(most[g] - allowed[g], k - sum(allowed))
    kept = [i for pool, allow in zip(members, allowed, strict=True) for i in pool[:allow]]
    return sorted(kept)


def test_prunesid_agrees_with_its_description() -> None:
    for k in (1, 5, 12, 24, 40):
        for seed in range(3):
            assert PruneSID().select(scene(seed), k).anchors.tolist() == prunesid_literal(scene(seed), k), (k, seed)


def test_patches_of_two_kinds_make_two_groups() -> None:
    """Patterns over channels at right angles, one stronger: each direction is made of the patches of one pattern."""
    level = torch.tensor([[3.0], [2.8], [3.2], [2.9]])
    features = torch.zeros(8, 4)
    features[::2] = level * torch.tensor([1.0, -1.0, 0.0, 0.0])
    features[1::2] = level / 3 * torch.tensor([0.0, 0.0, 1.0, -1.0])
    assert principal_groups(features, 2)[1].tolist() == [0, 1] * 4


def test_only_the_similar_of_one_group_are_suppressed() -> None:
    similarity = torch.ones(4, 4)
    similarity[0, 3] = similarity[3, 0] = 0.1
    score, group = torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0, 0, 1, 0])
    assert surviving(similarity, score, group, torch.tensor(0.5)).tolist() == [True, False, True, True]


def test_quotas_follow_survivors_within_limits_that_grow_until_the_budget_fits() -> None:
    """One each for three groups, 5 more as 3 : 1 : 1; the second cannot take its part, which the largest gets."""
    size, survived = torch.tensor([9.0, 3.0, 0.0, 5.0]), torch.tensor([6.0, 1.0, 0.0, 3.0])
    assert limits(size, survived, 17, 9).tolist() == [5, 1, 0, 3]
    assert quotas(size, survived, 17, 8, 9).tolist() == [1 + 3 + 1, 1, 0, 1 + 1]
    assert limits(size, survived, 17, 13).tolist() == [7, 3, 0, 5]
    assert quotas(size, survived, 17, 12, 13).sum() == 12
    assert quotas(size, survived, 17, 17, 18).tolist() == size.tolist()


def test_a_patch_is_never_kept_beside_its_copy_while_others_survive() -> None:
    features = scene(4).signals["vision.hidden@-2"].clone()
    features[1] = features[0]
    shown = replace(scene(4), signals={**scene(4).signals, "vision.hidden@-2": features})
    assert not {0, 1} <= set(PruneSID().select(shown, 8).anchors.tolist())
