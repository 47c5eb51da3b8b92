from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sightline.selectors.sparsevlm import (
    SparseVLM,
    cluster_count,
    density_peaks,
    kept_count,
    raters,
    recycled_count,
)
from tests.unit.selectors.layer_states import check_any_input, check_schedule, layer_state


def test_contract() -> None:
    check_any_input(SparseVLM())
    check_schedule(SparseVLM())


@pytest.mark.parametrize(
    ("budgets", "k"), [((300, 200, 110), 113), ((303, 110, 36), 39), ((238, 48, 26), 27), ((66, 30, 17), 18)]
)
def test_published_settings_come_back(budgets: tuple[int, ...], k: int) -> None:
    schedule = SparseVLM().schedule(576, k, 32)
    assert list(schedule) == [2, 6, 15]
    n = 576
    for budget, count in zip(budgets, schedule.values(), strict=True):
        assert count == budget + cluster_count(n, budget)
        assert kept_count(n, count) == budget
        n = count


def test_shallow_models_keep_three_cuts() -> None:
    assert list(SparseVLM().schedule(64, 20, 4)) == [0, 1, 2]
    assert list(SparseVLM().schedule(64, 20, 5)) == [0, 1, 2]
    assert list(SparseVLM().schedule(64, 20, 28)) == [2, 6, 15]


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


def test_centroid_is_the_mean_of_its_cluster_and_anchored_at_its_centre() -> None:
    state = layer_state(15, 20, behind=8)
    selection = SparseVLM().cut(state, 60)
    kept = kept_count(300, 60)
    assert selection.mix is not None
    centroids, anchors = selection.mix[kept:], selection.anchors[kept:]
    sizes = (centroids > 0).sum(dim=-1, keepdim=True)
    torch.testing.assert_close(centroids, (centroids > 0) / (sizes + 1e-6))
    assert bool(((centroids > 0).sum(dim=0) <= 1).all())
    assert not set(anchors.tolist()) & set(selection.anchors[:kept].tolist())
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
