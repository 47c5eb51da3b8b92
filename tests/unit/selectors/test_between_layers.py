"""Methods that prune between language layers: FastV, PyramidDrop, FitPrune, IVC-Prune, V2Drop, DART, TokenCarve."""

from __future__ import annotations

from dataclasses import replace

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
from tests.golden.layer_answers import last_token_attention
from tests.unit.selectors.views import layer_state, visual


def test_full_layers_then_one_cut() -> None:
    assert FastV().schedule(576, 231, 32) == {2: 231}
    assert FastV(fastv_k=2).schedule(576, 231, 32) == {1: 231}
    assert FastV().schedule(64, 20, 4) == {2: 20}
    assert FastV().schedule(64, 20, 3) == {1: 20}


def test_keeps_what_the_last_token_looks_at_and_ignores_text() -> None:
    state = layer_state(3, 4, before=2, behind=3)
    row = torch.zeros(2, 17)
    row[:, 0] = row[:, 16] = 0.3
    row[0, 2 + 7], row[1, 2 + 4] = 0.2, 0.1
    selection = FastV().cut(replace(state, signals={"lm.attention_last": row}), 3)
    assert selection.anchors.tolist() == [0, 4, 7]
    assert selection.mix is None


def test_score_has_a_batch_dimension_and_rises_to_float32() -> None:
    rows = torch.rand(3, 4, 10, generator=torch.Generator().manual_seed(0))
    image = torch.tensor([2, 3, 7])
    torch.testing.assert_close(attention_score(rows, image)[1], rows[1].mean(dim=0)[image])
    assert attention_score(rows.bfloat16(), image).dtype == torch.float32


def test_an_eighth_is_reached_by_halving() -> None:
    assert PyramidDrop().schedule(576, 72, 32) == {7: 288, 15: 144, 23: 72}
    assert PyramidDrop().schedule(2880, 360, 28) == {6: 1440, 13: 720, 20: 360}


def test_shallow_models() -> None:
    assert PyramidDrop().schedule(64, 8, 4) == {0: 32, 1: 16, 2: 8}
    assert PyramidDrop().schedule(64, 8, 3) == {0: 32, 1: 8}
    assert PyramidDrop().schedule(64, 8, 1) == {0: 8}


def test_ranks_by_the_next_layer() -> None:
    state = layer_state(4, 4)
    wanted = state.signals["lm.next_attention_last"].mean(dim=0)[state.image].topk(5).indices
    assert PyramidDrop().cut(state, 5).anchors.tolist() == sorted(wanted.tolist())


def test_last_token_attention_is_the_last_row_of_causal_attention() -> None:
    generator = torch.Generator().manual_seed(2)
    query, key = torch.randn(2, 3, 9, 8, generator=generator), torch.randn(2, 3, 9, 8, generator=generator)
    value = torch.eye(9).expand(2, 3, 9, 9)
    rows = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(last_token_attention(query[:, :, -1], key), rows[:, :, -1])


def test_budgets_in_between_are_in_between_everywhere() -> None:
    more, less, between = (FitPrune().schedule(576, k, 32) for k in (240, 173, 200))
    counts = {"more": 576, "less": 576, "between": 576}
    for layer in range(32):
        counts["more"] = more.get(layer, counts["more"])
        counts["less"] = less.get(layer, counts["less"])
        counts["between"] = between.get(layer, counts["between"])
        assert counts["less"] <= counts["between"] <= counts["more"]


def test_a_layer_without_deletions_is_not_cut() -> None:
    assert 31 not in FitPrune().schedule(576, 127, 32)
    assert 24 not in FitPrune().schedule(576, 127, 32)


def test_score_needs_attention_from_both_sides() -> None:
    state = layer_state(1, 4, before=1, behind=2, heads=2)
    attention = torch.zeros(2, 7, 7)
    attention[0, 4, 1] = 0.5  # token 0: by the image
    attention[1, 5, 2] = 0.5  # token 1: by the text
    attention[0, 4, 3], attention[1, 6, 3] = 0.2, 0.2  # token 2: by both
    score = two_sided_attention(attention, state.image)
    assert score.tolist() == pytest.approx([0.0, 0.0, 0.2 / 4 * 0.2, 0.0])


def test_heads_count_by_their_maximum_and_batches_are_independent() -> None:
    attention = layer_state(2, 3).signals["lm.attention"]
    image = layer_state(2, 3).image
    both = two_sided_attention(torch.stack((attention, attention.flip(0) * 0.5)), image)
    torch.testing.assert_close(both[1], both[0] * 0.25)


@pytest.mark.parametrize(
    ("depth", "layers", "published"), [(0.57, 28, 16), (0.61, 36, 22), (0.07, 28, 2), (0.63, 27, 17)]
)
def test_the_depths_named_for_other_models_are_the_layers_published_for_them(
    depth: float, layers: int, published: int
) -> None:
    assert f"{published} of {layers}" in " ".join((IVCPrune.__doc__ or "").split())
    assert IVCPrune(depth=depth).schedule(576, 192, layers) == {published - 1: 192}


def test_all_coordinates_depend_on_positions_alone() -> None:
    first, second = layer_state(6, 7, seed=1), layer_state(6, 7, seed=2)
    alone = IVCPrune(coordinates=1.0)
    both = {"lm.value": second.signals["lm.value"], "lm.rotary": first.signals["lm.rotary"]}
    kept = alone.cut(first, 4).anchors
    assert torch.equal(kept, alone.cut(replace(first, signals=both), 4).anchors)
    cos, sin = first.signals["lm.rotary"][:, first.image].mean(dim=-1)
    assert set(kept.tolist()) >= {int(cos.argmax()), int(sin.argmax())}


def test_without_coordinates_the_token_that_equals_the_only_word_comes_first() -> None:
    state = layer_state(3, 3, before=1, behind=1)
    values = torch.eye(11)[None] * 4.0
    values[0, 10] = values[0, 1 + 6]  # the word's value is that of visual token 6
    state = replace(state, signals={**state.signals, "lm.value": values})
    assert IVCPrune(coordinates=0.0).cut(state, 1).anchors.tolist() == [6]


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


def dart_literal(state: LayerState, quotas: list[int], image_pivots: int = 4, text_pivots: int = 4) -> list[int]:
    """The method as it is described, with a set for the pivots and a pool of free positions, one token at a time."""
    size = state.signals["lm.key"].abs().sum(dim=(0, 2)).tolist()
    image = state.image.tolist()
    behind = range(image[-1] + 1, len(size))
    visual = sorted(image, key=lambda p: -size[p])[:image_pivots]
    text = sorted(behind, key=lambda p: -size[p])[:text_pivots]
    pool = [p for p in image if p not in visual]
    kept = list(visual)
    normed = state.signals["lm.normed"].double()
    for pivot, quota in zip(set(visual + text), quotas, strict=True):
        pool.sort(key=lambda p: float(torch.cosine_similarity(normed[pivot], normed[p], dim=0)))
        kept += pool[:quota]
        pool = pool[quota:]
    return sorted(p - image[0] for p in kept)


def test_other_counts_give_the_first_visited_pivots_one_more() -> None:
    state = layer_state(12, 12, behind=9, seed=3)
    assert Dart().cut(state, 4 + 8 * 4 + 3).anchors.tolist() == dart_literal(state, [5, 5, 5, 4, 4, 4, 4, 4])


def test_small_budgets_keep_the_largest_pivots() -> None:
    state = layer_state(6, 6, seed=4)
    size = state.signals["lm.key"][:, state.image].abs().sum(dim=(0, 2))
    assert set(Dart().cut(state, 3).anchors.tolist()) == set(size.topk(3).indices.tolist())


@pytest.mark.parametrize("shape", [(40, 90), (90, 40), (50, 50)])
def test_information_is_the_row_sum_of_the_scaled_left_vectors(shape: tuple[int, int]) -> None:
    matrix = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    matrix[..., 3] *= 300  # one massive channel, as language models have them
    left, values, _ = torch.linalg.svd(matrix.double(), full_matrices=False)
    torch.testing.assert_close(information(matrix), (left * values.unsqueeze(-2)).abs().sum(dim=-1), rtol=1e-8, atol=0)


def test_places_count_down_from_n() -> None:
    assert places(torch.tensor([0.1, 0.9, 0.9, 0.0])).tolist() == [2, 4, 3, 1]


def test_merged_tokens_are_plain_means_with_their_partner() -> None:
    state = layer_state(8, 8, width=80)
    selector = TokenCarve(weight=0.37)
    kept, source, target = selector.carve(state, 20)
    assert len(source) == 10
    assert set(target.tolist()) <= set(kept.tolist())
    assert not set(source.tolist()) & set(kept.tolist())
    tokens = visual(state)
    selection = selector.cut(state, 20)
    assert selection.mix is not None
    for slot, token in enumerate(kept.tolist()):
        members = [token, *source[target == token].tolist()]
        torch.testing.assert_close(selection.mix[slot] @ tokens, tokens[members].mean(dim=0))


def test_attention_ranking_keeps_the_upper_half_whole() -> None:
    state = layer_state(8, 8)
    score = state.signals["lm.attention_last"].mean(dim=0)[state.image]
    kept, source, _ = TokenCarve(ranking="attention").carve(state, 20)
    best = score.topk(30).indices.tolist()
    assert set(best[:15]) <= set(kept.tolist())
    assert set(kept.tolist()) | set(source.tolist()) == set(best)


def test_generous_budgets_merge_only_the_excess() -> None:
    state = layer_state(6, 6)
    assert len(TokenCarve().carve(state, 30)[1]) == 6
