"""A budget of every tile's own: views cut into tiles, and their selections put together."""

from __future__ import annotations

import math

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
from sightline.core.selection_rules import CountedPart, check_anchors, join_selections, parts_of, tiles_of
from tests.refusals import Refused

LAYOUT: Layout = ((2, 3), (1, 2), (2, 2))
N = 12
SHAPES: dict[str, tuple[int, ...]] = {
    "vision.hidden@-2": (N, 5), "vision.hidden_mean@1:2": (N, 5), "vision.cls@-2": (5,),
    "vision.cls_attention@-2": (3, N), "vision.received@-1": (N,),
    **{f"vision.{part}@-1": (3, N, 4) for part in ("query", "key", "value")},
    **{f"vision.cls_{part}@-1": (3, 4) for part in ("query", "key", "value")},
    "image.pixels": (N, 5), "projector.sensitivity": (N,), "clip.image": (N, 2), "clip.text": (N, 2),
}  # fmt: skip
SIGNALS = {name: torch.arange(math.prod(shape)).reshape(shape) for name, shape in SHAPES.items()}
"""One of every kind; the question has as many rows as the image has tokens, and is not to be cut for that."""


def view() -> TokenView:
    tokens = torch.arange(float(N)).reshape(N, 1)
    cells = torch.arange(4.0 * N).reshape(N, 4).double()
    return TokenView(tokens, cells, LAYOUT, torch.ones(2, 1), torch.zeros(1, 4), SIGNALS, key="probe:orig:0.3:random")


def test_a_budget_is_counted_over_the_image_or_over_every_tile() -> None:
    for budget, k in [
        (Budget.ratio(0.3), 4),
        (Budget.ratio(0.3, "tile"), 2 + 1 + 2),
        (Budget.ratio(0.01, "tile"), 3),
        (Budget.tokens(3), 3),
        (Budget.tokens(3, "tile"), 3 + 2 + 3),
        (Budget.ratio(1.0, "tile"), N),
    ]:
        assert budget.total(LAYOUT) == k
        assert sum(budget.resolve(part.n) for part in parts_of(LAYOUT, budget)) == k
    grid: Layout = ((4, 6),)  # one part under either kind of budget
    assert parts_of(grid, Budget.ratio(0.3)) == parts_of(grid, Budget.ratio(0.3, "tile")) == [CountedPart(0, grid)]
    assert Budget.ratio(0.3, "tile").total(grid) == Budget.ratio(0.3).resolve(24)


def test_a_tile_is_seen_as_an_image_of_its_own_and_every_signal_cut_along_its_tokens_alone() -> None:
    assert {name.partition("@")[0] for name in SIGNALS} == {*HIDDEN_KINDS, *BLOCK_KINDS, *LAYERLESS_KINDS}
    whole = view()
    parts = [part.of(whole) for part in parts_of(LAYOUT, Budget.ratio(0.5, "tile"))]
    assert [part.layout for part in parts] == [((2, 3),), ((1, 2),), ((2, 2),)]
    assert parts[1].tokens.flatten().tolist() == [6.0, 7.0]
    assert torch.equal(torch.cat([part.cells for part in parts]), whole.cells)
    assert all(part.query is whole.query and part.boxes is whole.boxes for part in parts)
    assert len({part.key for part in (*parts, whole)}) == 4, "tiles are drawn from independently"
    for name, values in SIGNALS.items():
        axis = TOKEN_AXIS.get(name.partition("@")[0])
        if axis is None:
            assert all(part.signals[name] is values for part in parts)
        else:
            assert [part.signals[name].shape[axis] for part in parts] == [6, 2, 4]
            assert torch.equal(torch.cat([part.signals[name] for part in parts], dim=axis), values)


def test_between_layers_a_tile_is_seen_in_the_prompt_without_the_others() -> None:
    """Two positions in front, three behind; a cut has left tokens 1, 3, 5, 7, 8 and 9 of the twelve."""
    source = torch.tensor([1, 3, 5, 7, 8, 9])
    left = torch.tensor([0, 1, *(2 + source).tolist(), 14, 15, 16])
    values, attention = torch.arange(17.0)[left], ("lm.attention", "lm.next_attention")
    headed = (
        "lm.next_query", "lm.next_key", "lm.query", "lm.key", "lm.value", "lm.bare_query", "lm.bare_key", "lm.rotary",
    )  # fmt: skip
    signals = {
        **dict.fromkeys(attention, (values[:, None] * 100 + values)[None]),
        **dict.fromkeys(headed, values[None, :, None]),
        "lm.parts": values[None, None, :, None].expand(2, 2, -1, 1),
        **dict.fromkeys(("lm.attention_last", "lm.next_attention_last"), values[None]),
        **dict.fromkeys(("lm.input", "lm.normed"), values[:, None]),
        "lm.embeds": torch.arange(17.0)[:, None],
        "lm.scout": torch.cat([values, torch.tensor([99.0])])[None],
        "vision.hidden@1": torch.arange(12.0)[:, None],
    }
    assert {*signals} - {"vision.hidden@1"} == {*PROMPT_AXES} == {*LANGUAGE_KINDS}
    state = LayerState(3, values[:, None], torch.arange(2, 8), source, LAYOUT, signals, key="probe")
    third = tiles_of(LAYOUT)[2].among(state, 2 + torch.arange(N))
    expected = [0.0, 1.0, 10.0, 11.0, 14.0, 15.0, 16.0]
    assert (third.image.tolist(), third.source.tolist(), third.layout) == ([2, 3], [0, 1], ((2, 2),))
    assert third.hidden.flatten().tolist() == expected
    found = {name: signal.flatten().tolist() for name, signal in third.signals.items()}
    rows = [100 * row + column for row in expected for column in expected]
    assert found == {
        **dict.fromkeys(signals, expected),
        **dict.fromkeys(attention, rows),
        "lm.parts": expected * 4,
        "lm.embeds": [0.0, 1.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0],  # of the prompt before any cut
        "lm.scout": [*expected, 99.0],  # a method's own token stays
        "vision.hidden@1": [8.0, 9.0, 10.0, 11.0],  # of the tile's tokens
    }
    assert third.signals["lm.parts"].shape == (2, 2, 7, 1)


def selected(*chosen: list[int]) -> list[Selection]:
    return [Selection(torch.tensor(anchors)) for anchors in chosen]


def test_chosen_tokens_become_those_of_the_image_and_one_beyond_its_tile_none_of_the_next(refused: Refused) -> None:
    found = join_selections(selected([0, 5], [1], [0, 3]), [6, 2, 4])
    assert found.anchors.tolist() == [0, 5, 7, 8, 11]
    assert found.mix is None
    wrong = join_selections(selected([0, 6], [1], [0]), [6, 2, 4])
    refused("chose token 12 of 12", check_anchors, wrong.anchors, N, "any", merges=False)


def test_mixes_stay_within_their_tile_and_share_the_class_token() -> None:
    mixed = Selection(torch.tensor([-1, 1]), torch.tensor([[0.0, 0.0, 1.0], [0.25, 0.75, 0.0]]), merge_at="vision")
    plain = Selection(torch.tensor([0, 2]))
    found = join_selections([mixed, plain], [2, 3])
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
    found = join_selections(ranked, [2, 2])
    assert found.anchors.tolist() == [1, 0, 3, 2]
    assert found.mix is not None
    assert found.mix.argmax(dim=1).tolist() == [1, 0, 3, 2]
