"""Methods that prune between language layers: FastV, PyramidDrop, FitPrune, IVC-Prune, V2Drop, DART, TokenCarve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from sightline.core.selection import LayerState
from sightline.selectors.dart import Dart
from sightline.selectors.fastv import FastV, attention_score
from sightline.selectors.fitprune import FitPrune, two_sided_attention
from sightline.selectors.ivcprune import IVCPrune
from sightline.selectors.pyramiddrop import PyramidDrop
from sightline.selectors.tokencarve import TokenCarve, information, places
from sightline.selectors.v2drop import V2Drop, variation
from tests.unit.selectors.views import layer_state, visual


@pytest.mark.parametrize(("selector", "n", "k", "layers", "schedule"), [
    (FastV(), 576, 231, 32, {2: 231}),
    (FastV(fastv_k=2), 576, 231, 32, {1: 231}),
    (FastV(), 64, 20, 4, {2: 20}),
    (FastV(), 64, 20, 3, {1: 20}),
    # An eighth is reached by halving, also in shallow models.
    (PyramidDrop(), 576, 72, 32, {7: 288, 15: 144, 23: 72}),
    (PyramidDrop(), 2880, 360, 28, {6: 1440, 13: 720, 20: 360}),
    (PyramidDrop(), 64, 8, 4, {0: 32, 1: 16, 2: 8}),
    (PyramidDrop(), 64, 8, 3, {0: 32, 1: 8}),
    (PyramidDrop(), 64, 8, 1, {0: 8}),
    # As published for 32 and 28 layers; other depths in proportion to 32.
    (V2Drop(), 512, 64, 32, {2: 256, 16: 128, 21: 64}),
    (V2Drop(), 512, 64, 28, {2: 256, 15: 128, 21: 64}),
    (V2Drop(), 512, 64, 64, {5: 256, 33: 128, 43: 64}),
    # The depths that are named for other models are the layers published for them.
    *((IVCPrune(depth=depth), 576, 192, layers, {published - 1: 192})
      for depth, layers, published in ((0.57, 28, 16), (0.61, 36, 22), (0.07, 28, 2), (0.63, 27, 17))),
])  # fmt: skip
def test_cuts_fall_where_they_are_published(selector: Any, n: int, k: int, layers: int, schedule: Any) -> None:
    assert selector.schedule(n, k, layers) == schedule
    if isinstance(selector, IVCPrune):
        assert f"{min(schedule) + 1} of {layers}" in " ".join((IVCPrune.__doc__ or "").split())


def test_fastv_keeps_what_the_last_token_looks_at_and_ignores_text() -> None:
    state = layer_state(3, 4, before=2, behind=3)
    row = torch.zeros(2, 17)
    row[:, 0] = row[:, 16] = 0.3
    row[0, 2 + 7], row[1, 2 + 4] = 0.2, 0.1
    selection = FastV().cut(replace(state, signals={"lm.attention_last": row}), 3)
    assert (selection.anchors.tolist(), selection.mix) == ([0, 4, 7], None)
    rows = torch.rand(3, 4, 10, generator=torch.Generator().manual_seed(0))
    image = torch.tensor([2, 3, 7])
    torch.testing.assert_close(attention_score(rows, image)[1], rows[1].mean(dim=0)[image])
    assert attention_score(rows.bfloat16(), image).dtype == torch.float32


def test_pyramiddrop_ranks_by_the_next_layer() -> None:
    state = layer_state(4, 4)
    wanted = state.signals["lm.next_attention_last"].mean(dim=0)[state.image].topk(5).indices
    assert PyramidDrop().cut(state, 5).anchors.tolist() == sorted(wanted.tolist())


def test_fitprune_does_not_cut_at_a_layer_without_deletions() -> None:
    assert not {24, 31} & set(FitPrune().schedule(576, 127, 32))


def test_fitprunes_budgets_in_between_are_in_between_everywhere() -> None:
    counts = [576] * 3
    for layer in range(32):
        schedules = [FitPrune().schedule(576, k, 32) for k in (173, 200, 240)]
        counts = [own.get(layer, count) for own, count in zip(schedules, counts, strict=True)]
        assert counts == sorted(counts)


def test_fitprune_needs_attention_from_both_sides() -> None:
    state = layer_state(1, 4, before=1, behind=2, heads=2)
    attention = torch.zeros(2, 7, 7)
    attention[0, 4, 1] = 0.5  # token 0: by the image
    attention[1, 5, 2] = 0.5  # token 1: by the text
    attention[0, 4, 3], attention[1, 6, 3] = 0.2, 0.2  # token 2: by both
    score = two_sided_attention(attention, state.image)
    assert score.tolist() == pytest.approx([0.0, 0.0, 0.2 / 4 * 0.2, 0.0])


def test_fitprunes_heads_count_by_their_maximum() -> None:
    state = layer_state(2, 3)
    attention = state.signals["lm.attention"]
    both = two_sided_attention(torch.stack((attention, attention.flip(0) * 0.5)), state.image)
    torch.testing.assert_close(both[1], both[0] * 0.25)


def test_ivcprune_takes_coordinates_by_positions_alone() -> None:
    first, second = layer_state(6, 7, seed=1), layer_state(6, 7, seed=2)
    both = {"lm.value": second.signals["lm.value"], "lm.rotary": first.signals["lm.rotary"]}
    kept = IVCPrune(coordinates=1.0).cut(first, 4).anchors
    assert torch.equal(kept, IVCPrune(coordinates=1.0).cut(replace(first, signals=both), 4).anchors)
    cos, sin = first.signals["lm.rotary"][:, first.image].mean(dim=-1)
    assert set(kept.tolist()) >= {int(cos.argmax()), int(sin.argmax())}


def test_ivcprune_takes_others_by_the_word_that_they_equal() -> None:
    state = layer_state(3, 3, before=1, behind=1)
    values = torch.eye(11)[None] * 4.0
    values[0, 10] = values[0, 1 + 6]  # the word's value is that of visual token 6
    state = replace(state, signals={**state.signals, "lm.value": values})
    assert IVCPrune(coordinates=0.0).cut(state, 1).anchors.tolist() == [6]


def test_v2drop_keeps_the_tokens_that_moved_farthest() -> None:
    """Three of six tokens move, by lengths 5, 13 and 1 that can be read off their differences."""
    state = layer_state(2, 3, before=2, behind=2, width=2)
    given = torch.ones(10, 2)
    hidden = given.clone()
    hidden[[2 + 1, 2 + 4, 2 + 5]] += torch.tensor([[3.0, 4.0], [5.0, -12.0], [1.0, 0.0]])
    hidden[0] += 100.0  # text is not looked at
    state = replace(state, hidden=hidden, signals={"lm.input": given})
    assert variation(given, hidden, state.image).tolist() == [0.0, 5.0, 0.0, 0.0, 13.0, 1.0]
    assert V2Drop().cut(state, 2).anchors.tolist() == [1, 4]
    assert V2Drop().cut(state, 4).anchors.tolist() == [0, 1, 4, 5], "equal variations go to the lower index"


def dart_literal(state: LayerState, quotas: list[int]) -> list[int]:
    """The method as it is described, with a set for the pivots and a pool of free positions, one token at a time."""
    size = state.signals["lm.key"].abs().sum(dim=(0, 2)).tolist()
    image = state.image.tolist()
    behind = range(image[-1] + 1, len(size))
    visual = sorted(image, key=lambda p: -size[p])[:4]
    text = sorted(behind, key=lambda p: -size[p])[:4]
    pool = [p for p in image if p not in visual]
    kept = list(visual)
    normed = state.signals["lm.normed"].double()
    for pivot, quota in zip(set(visual + text), quotas, strict=True):
        pool.sort(key=lambda p: float(torch.cosine_similarity(normed[pivot], normed[p], dim=0)))
        kept += pool[:quota]
        pool = pool[quota:]
    return sorted(p - image[0] for p in kept)


def test_dart_gives_the_first_visited_pivots_one_more() -> None:
    state = layer_state(12, 12, behind=9, seed=3)
    assert Dart().cut(state, 4 + 8 * 4 + 3).anchors.tolist() == dart_literal(state, [5, 5, 5, 4, 4, 4, 4, 4])


def test_small_budgets_of_dart_keep_the_largest_pivots() -> None:
    state = layer_state(6, 6, seed=4)
    size = state.signals["lm.key"][:, state.image].abs().sum(dim=(0, 2))
    assert set(Dart().cut(state, 3).anchors.tolist()) == set(size.topk(3).indices.tolist())


def test_tokencarves_information_is_the_row_sum_of_the_scaled_left_vectors() -> None:
    for shape in ((40, 90), (90, 40), (50, 50)):
        matrix = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
        matrix[..., 3] *= 300  # one massive channel, as language models have them
        left, values, _ = torch.linalg.svd(matrix.double(), full_matrices=False)
        row_sums = (left * values.unsqueeze(-2)).abs().sum(dim=-1)
        torch.testing.assert_close(information(matrix), row_sums, rtol=1e-8, atol=0)
    assert places(torch.tensor([0.1, 0.9, 0.9, 0.0])).tolist() == [2, 4, 3, 1], "they count down from n"


def test_tokencarve_keeps_the_upper_half_by_attention_whole() -> None:
    state = layer_state(8, 8)
    best = state.signals["lm.attention_last"].mean(dim=0)[state.image].topk(30).indices.tolist()
    kept, source, _ = TokenCarve(ranking="attention").carve(state, 20)
    assert set(best[:15]) <= set(kept.tolist()), "the upper half stays whole"
    assert {*kept.tolist(), *source.tolist()} == set(best)


def test_tokencarve_makes_plain_means_and_merges_only_the_excess() -> None:
    state, selector = layer_state(8, 8, width=80), TokenCarve(weight=0.37)
    kept, source, target = selector.carve(state, 20)
    assert len(source) == 10
    assert set(target.tolist()) <= set(kept.tolist())
    assert not set(source.tolist()) & set(kept.tolist())
    mix, tokens = selector.cut(state, 20).mix, visual(state)
    assert mix is not None
    for slot, token in enumerate(kept.tolist()):
        members = [token, *source[target == token].tolist()]
        torch.testing.assert_close(mix[slot] @ tokens, tokens[members].mean(dim=0))
    assert len(TokenCarve().carve(layer_state(6, 6), 30)[1]) == 6
