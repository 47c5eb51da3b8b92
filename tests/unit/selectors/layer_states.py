"""Layer states made of random or degenerate tensors, and what every method that cuts between layers must honour."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.core.selection import LayerSelector, LayerState, Selection

KINDS = ("random", "zeros", "equal", "duplicates")


def layer_state(
    rows: int = 6,
    columns: int = 7,
    *,
    before: int = 5,
    behind: int = 6,
    width: int = 24,
    heads: int = 2,
    kind: str = "random",
    seed: int = 0,
) -> LayerState:
    """A prompt of ``before`` text tokens, a rows x columns image and ``behind`` text tokens, with every signal."""
    generator = torch.Generator().manual_seed(seed)
    n = rows * columns
    length = before + n + behind

    def draw(*shape: int) -> Tensor:
        if kind == "zeros":
            return torch.zeros(*shape)
        if kind == "equal":
            return torch.ones(*shape)
        values = torch.randn(*shape, generator=generator)
        if kind == "duplicates":  # along the sequence, the last dimension but one of everything drawn below
            values = values.index_select(-2, torch.arange(shape[-2]) // 4 * 4)
        return values

    future = torch.ones(length, length).triu(1).bool()
    attention = draw(heads, length, length).masked_fill(future, -torch.inf).softmax(dim=-1)
    hidden = draw(length, width)
    return LayerState(
        layer=1,
        hidden=hidden,
        image=torch.arange(before, before + n),
        source=torch.arange(n),
        layout=((rows, columns),),
        signals={
            "lm.attention": attention,
            "lm.attention_last": attention[:, -1],
            "lm.next_attention_last": draw(heads, length, 1).squeeze(-1).softmax(dim=-1),
            "lm.key": draw(heads, length, 8),
            "lm.value": draw(heads, length, 8),
            "lm.bare_query": draw(2 * heads, length, 8),
            "lm.bare_key": draw(heads, length, 8),
            "lm.rotary": rotary(length, 8),
            "lm.input": draw(length, width),
            "lm.normed": torch.nn.functional.normalize(hidden, dim=-1),
            "lm.embeds": draw(length, width),
        },
        key="probe:orig:0.4",
    )


def rotary(length: int, width: int) -> Tensor:
    """(2, length, width) cosines and sines of plain one-dimensional positions."""
    angle = torch.arange(length)[:, None] * 1e4 ** -(torch.arange(0, width, 2) / width).repeat(2)
    return torch.stack([angle.cos(), angle.sin()])


def visual(state: LayerState) -> Tensor:
    return state.hidden[state.image]


def check_selection(selection: Selection, n: int, k: int) -> None:
    """Exactly k distinct tokens of the n; a mix that is finite and in which every output contains its anchor."""
    anchors = selection.anchors
    assert anchors.dtype == torch.int64
    assert anchors.shape == (k,)
    assert len(set(anchors.tolist())) == k
    assert int(anchors.min()) >= 0
    assert int(anchors.max()) < n
    if selection.mix is not None:
        assert selection.mix.shape == (k, n)
        assert bool(torch.isfinite(selection.mix).all())
        assert bool((selection.mix[torch.arange(k), anchors] > 0).all())
        torch.testing.assert_close(selection.mix.sum(dim=-1), torch.ones(k), rtol=0, atol=1e-4)


def check_any_input(selector: LayerSelector) -> None:
    """Ordinary and degenerate states, every budget of a small image, with and without text behind it."""
    for kind in KINDS:
        for shape in ((1, 1), (1, 2), (3, 5), (6, 7)):
            for behind in (0, 1, 6):
                state = layer_state(*shape, behind=behind, kind=kind)
                n = len(state.image)
                for k in {1, 2, 3, 5, 8, n // 2, n - 1, n} & set(range(1, n + 1)):
                    check_selection(selector.cut(state, k), n, k)


def check_schedule(selector: LayerSelector) -> None:
    """Counts fall from at most n to exactly k, at ascending layers, and a layer is left to run on the k survivors."""
    for layers in (1, 2, 3, 4, 5, 12, 28, 32, 36):
        for n, k in ((1, 1), (2, 1), (9, 9), (35, 4), (64, 26), (576, 231), (576, 3), (2500, 1000)):
            schedule = selector.schedule(n, k, layers)
            counts = list(schedule.values())
            assert counts[-1] == k, (layers, n, k)
            assert counts == sorted(counts, reverse=True)
            assert counts[0] <= n
            assert list(schedule) == sorted(schedule)
            assert min(schedule) >= 0
            assert max(schedule) <= max(0, layers - 2)
