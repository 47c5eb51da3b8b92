"""A budget of every tile's own: views cut into tiles, and their selections put together."""

from __future__ import annotations

import pytest
import torch

from sightline.core.selection import (
    BLOCK_KINDS,
    HIDDEN_KINDS,
    LANGUAGE_KINDS,
    LAYERLESS_KINDS,
    PROMPT_AXES,
    TOKEN_AXIS,
    Budget,
    LayerState,
    Layout,
    Selection,
    TokenView,
)
from sightline.core.selection_rules import CountedPart, check_anchors, parts_of, tiles_of, together
from sightline.errors import SightlineError

LAYOUT: Layout = ((2, 3), (1, 2), (2, 2))
N = 12
SIGNALS = {
    "vision.hidden@-2": torch.arange(N * 5).reshape(N, 5),
    "vision.hidden_mean@1:2": torch.arange(N * 5).reshape(N, 5),
    "vision.cls@-2": torch.arange(5),
    "vision.cls_attention@-2": torch.arange(3 * N).reshape(3, N),
    "vision.received@-1": torch.arange(N),
    "vision.query@-1": torch.arange(3 * N * 4).reshape(3, N, 4),
    "vision.key@-1": torch.arange(3 * N * 4).reshape(3, N, 4),
    "vision.value@-1": torch.arange(3 * N * 4).reshape(3, N, 4),
    "vision.cls_key@-1": torch.arange(12).reshape(3, 4),
    "vision.cls_query@-1": torch.arange(12).reshape(3, 4),
    "vision.cls_value@-1": torch.arange(12).reshape(3, 4),
    "image.pixels": torch.arange(N * 5).reshape(N, 5),
    "projector.sensitivity": torch.arange(N),
    "clip.image": torch.arange(N * 2).reshape(N, 2),
    "clip.text": torch.arange(N * 2).reshape(N, 2),
}
"""One of every kind; the question has as many rows as the image has tokens, and is not to be cut for that."""


def view() -> TokenView:
    tokens = torch.arange(float(N)).reshape(N, 1)
    cells = torch.arange(4.0 * N).reshape(N, 4).double()
    return TokenView(tokens, cells, LAYOUT, torch.ones(2, 1), torch.zeros(1, 4), SIGNALS, key="probe:orig:0.3:random")


@pytest.mark.parametrize(
    ("budget", "k"),
    [
        (Budget.ratio(0.3), 4),
        (Budget.ratio(0.3, "tile"), 2 + 1 + 2),
        (Budget.ratio(0.01, "tile"), 3),
        (Budget.tokens(3), 3),
        (Budget.tokens(3, "tile"), 3 + 2 + 3),
        (Budget.ratio(1.0, "tile"), N),
    ],
)
def test_a_budget_is_counted_over_the_image_or_over_every_tile(budget: Budget, k: int) -> None:
    assert budget.total(LAYOUT) == k
    assert sum(budget.resolve(part.n) for part in parts_of(LAYOUT, budget)) == k


def test_one_grid_is_one_part_under_either_kind_of_budget() -> None:
    grid: Layout = ((4, 6),)
    assert parts_of(grid, Budget.ratio(0.3)) == parts_of(grid, Budget.ratio(0.3, "tile")) == [CountedPart(0, grid)]
    assert Budget.ratio(0.3, "tile").total(grid) == Budget.ratio(0.3).resolve(24)


def test_every_kind_of_signal_is_cut_along_its_tokens_and_nothing_else() -> None:
    assert {name.partition("@")[0] for name in SIGNALS} == {*HIDDEN_KINDS, *BLOCK_KINDS, *LAYERLESS_KINDS}
    parts = [part.of(view()) for part in parts_of(LAYOUT, Budget.ratio(0.5, "tile"))]
    for name, whole in SIGNALS.items():
        axis = TOKEN_AXIS.get(name.partition("@")[0])
        if axis is None:
            assert all(part.signals[name] is whole for part in parts)
        else:
            assert [part.signals[name].shape[axis] for part in parts] == [6, 2, 4]
            assert torch.equal(torch.cat([part.signals[name] for part in parts], dim=axis), whole)


def test_a_tile_is_seen_as_an_image_of_its_own() -> None:
    whole = view()
    first, second, third = (part.of(whole) for part in parts_of(LAYOUT, Budget.ratio(0.5, "tile")))
    assert [first.layout, second.layout, third.layout] == [((2, 3),), ((1, 2),), ((2, 2),)]
    assert second.tokens.flatten().tolist() == [6.0, 7.0]
    assert torch.equal(torch.cat([first.cells, second.cells, third.cells]), whole.cells)
    assert first.query is whole.query
    assert first.boxes is whole.boxes
    assert len({first.key, second.key, third.key, whole.key}) == 4, "tiles are drawn from independently"


def test_between_layers_a_tile_is_seen_in_the_prompt_without_the_others() -> None:
    """Two positions in front, three behind; a cut has left tokens 1, 3, 5, 7, 8 and 9 of the twelve."""
    source = torch.tensor([1, 3, 5, 7, 8, 9])
    left = torch.tensor([0, 1, *(2 + source).tolist(), 14, 15, 16])
    values = torch.arange(17.0)
    signals = {
        "lm.attention": (values[left, None] * 100 + values[left])[None],
        "lm.next_attention": (values[left, None] * 100 + values[left])[None],
        "lm.next_query": values[left][None, :, None],
        "lm.next_key": values[left][None, :, None],
        "lm.parts": values[left][None, None, :, None].expand(2, 2, -1, 1),
        "lm.attention_last": values[left][None],
        "lm.next_attention_last": values[left][None],
        "lm.query": values[left][None, :, None],
        "lm.key": values[left][None, :, None],
        "lm.value": values[left][None, :, None],
        "lm.bare_query": values[left][None, :, None],
        "lm.bare_key": values[left][None, :, None],
        "lm.rotary": values[left][None, :, None],
        "lm.input": values[left][:, None],
        "lm.normed": values[left][:, None],
        "lm.embeds": values[:, None],
        "lm.scout": torch.cat([values[left], torch.tensor([99.0])])[None],
        "vision.hidden@1": torch.arange(12.0)[:, None],
    }
    assert {*signals} - {"vision.hidden@1"} == {*PROMPT_AXES} == {*LANGUAGE_KINDS}
    state = LayerState(3, values[left][:, None], torch.arange(2, 8), source, LAYOUT, signals, key="probe")
    third = tiles_of(LAYOUT)[2].among(state, 2 + torch.arange(N))
    expected = [0.0, 1.0, 10.0, 11.0, 14.0, 15.0, 16.0]
    assert third.image.tolist() == [2, 3]
    assert third.source.tolist() == [0, 1]
    assert third.layout == ((2, 2),)
    assert third.hidden.flatten().tolist() == expected
    assert third.signals["lm.scout"].flatten().tolist() == [*expected, 99.0], "a method's own token stays"
    assert third.signals["vision.hidden@1"].flatten().tolist() == [8.0, 9.0, 10.0, 11.0], "of the tile's tokens"
    for name in set(signals) - {
        "lm.attention",
        "lm.next_attention",
        "lm.parts",
        "lm.embeds",
        "lm.scout",
        "vision.hidden@1",
    }:
        assert third.signals[name].flatten().tolist() == expected, name
    assert third.signals["lm.attention"][0].tolist() == [
        [100 * row + column for column in expected] for row in expected
    ]
    whole_tile = [0.0, 1.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0]
    assert torch.equal(third.signals["lm.next_attention"], third.signals["lm.attention"])
    assert torch.equal(third.signals["lm.parts"][1, 0], third.signals["lm.input"])
    assert third.signals["lm.embeds"].flatten().tolist() == whole_tile, "of the prompt before any cut"


def test_chosen_tokens_become_those_of_the_image() -> None:
    chosen = [Selection(torch.tensor([0, 5])), Selection(torch.tensor([1])), Selection(torch.tensor([0, 3]))]
    assert together(chosen, [6, 2, 4]).anchors.tolist() == [0, 5, 7, 8, 11]
    assert together(chosen, [6, 2, 4]).mix is None


def test_a_token_beyond_its_tile_does_not_pass_for_one_of_the_next() -> None:
    wrong = [Selection(torch.tensor([0, 6])), Selection(torch.tensor([1])), Selection(torch.tensor([0]))]
    with pytest.raises(SightlineError, match="chose token 12 of 12"):
        check_anchors(together(wrong, [6, 2, 4]).anchors, N, "any", merges=False)


def test_mixes_stay_within_their_tile_and_share_the_class_token() -> None:
    mixed = Selection(torch.tensor([-1, 1]), torch.tensor([[0.0, 0.0, 1.0], [0.25, 0.75, 0.0]]), merge_at="vision")
    plain = Selection(torch.tensor([0, 2]))
    found = together([mixed, plain], [2, 3])
    assert found.merge_at == "vision"
    assert found.anchors.tolist() == [-1, 1, 2, 4], "what has no cell comes first, then native order"
    assert found.mix is not None
    assert found.mix.tolist() == [
        [0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        [0.25, 0.75, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
    ]


def test_an_order_that_a_method_insists_on_is_kept_tile_by_tile() -> None:
    eye = torch.eye(2)
    ranked = [Selection(torch.tensor([1, 0]), eye[[1, 0]], native_order=False) for _ in range(2)]
    found = together(ranked, [2, 2])
    assert found.anchors.tolist() == [1, 0, 3, 2]
    assert found.mix is not None
    assert found.mix.argmax(dim=1).tolist() == [1, 0, 3, 2]
