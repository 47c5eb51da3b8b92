"""What selectors look at in tests: token views, random or degenerate, and states of a language layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
import yaml
from torch import Tensor

from sightline.core.selection import LayerState, Selection, TokenView
from sightline.selectors import SELECTORS


def made(text: str) -> Any:
    """``NAME`` or ``NAME:KEY=VALUE,...``, past what reads arms."""
    name, _, arguments = text.partition(":")
    pairs = (pair.split("=") for pair in arguments.split(",") if pair)
    return cast(Any, SELECTORS.get(name))(**{key: yaml.safe_load(value) for key, value in pairs})


def view(tokens: Tensor, query: Tensor | None = None, signals: Mapping[str, Tensor] | None = None) -> TokenView:
    """From tensors alone, for selectors that look at no geometry."""
    n, d = tokens.shape
    return TokenView(
        tokens=tokens,
        cells=torch.zeros(n, 4, dtype=torch.float64),
        layout=((1, n),),
        query=torch.zeros(0, d) if query is None else query,
        boxes=torch.zeros(0, 4, dtype=torch.float64),
        signals=signals or {},
    )


ROWS, COLUMNS, WIDTH, FEATURES, HEADS, HEAD_WIDTH = 6, 7, 24, 16, 2, 8


def scene(seed: int, rows: int = ROWS, columns: int = COLUMNS, texts: int = 3) -> TokenView:
    """A random view with every signal that a class-token vision tower offers."""
    n = rows * columns
    source = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source)

    signals = {
        "vision.hidden@-2": normal(n, FEATURES),
        "vision.hidden_mean@16:24": normal(n, FEATURES),
        "vision.cls_attention@-2": normal(HEADS, n + 1).softmax(dim=1)[:, 1:],
        "vision.received@8": normal(n + 1).softmax(dim=0)[1:],
        "vision.received@-2": normal(n + 1).softmax(dim=0)[1:],
        **{f"vision.cls_attention@{layer}": normal(HEADS, n + 1).softmax(dim=1)[:, 1:] for layer in range(22)},
        **{f"vision.value@{layer}": normal(HEADS, n, HEAD_WIDTH) for layer in range(22)},
        **{f"vision.cls_value@{layer}": normal(HEADS, HEAD_WIDTH) for layer in range(22)},
        "image.pixels": normal(n, FEATURES),
        "projector.sensitivity": normal(n).abs(),
        "vision.key@-1": normal(HEADS, n, HEAD_WIDTH),
        "vision.cls_query@-1": normal(HEADS, HEAD_WIDTH),
        "vision.cls_key@-1": normal(HEADS, HEAD_WIDTH),
    }
    tokens, query = normal(n, WIDTH), normal(texts, WIDTH)
    signals |= {
        "clip.image": normal(n, FEATURES),
        "clip.text": normal(2, FEATURES),
        "vision.cls_attention@-1": normal(HEADS, n + 1).softmax(dim=1)[:, 1:],
        "vision.received@-1": normal(n + 1).softmax(dim=0)[1:],
        "vision.key@-2": normal(HEADS, n, HEAD_WIDTH),
        "vision.cls@-2": normal(FEATURES),
    }
    return replace(view(tokens, query, signals), layout=((rows, columns),))


def degenerate_images() -> dict[str, TokenView]:
    """Inputs on which published code divides by zero, repeats a pick or raises."""
    whole = scene(1)

    def every(change: Any) -> TokenView:
        signals = {name: change(signal.clone()) for name, signal in whole.signals.items()}
        return replace(whole, tokens=change(whole.tokens.clone()), signals=signals)

    def without_some(x: Tensor, value: float = 0.0) -> Tensor:
        if ROWS * COLUMNS in x.shape[:2]:
            x.movedim(x.shape.index(ROWS * COLUMNS), 0)[::3] = value
        return x

    return {
        "zeros": every(torch.zeros_like),
        "all tokens alike": every(torch.ones_like),
        "some zero tokens": every(without_some),
        "some NaN tokens": every(lambda x: without_some(x, float("nan"))),
        "no question": replace(whole, query=whole.query[:0]),
    }


def check_selection(
    selection: Selection, n: int, k: int, without_source: int = 0, finite: bool = True, class_source: bool = False
) -> None:
    """K outputs; anchors distinct and in range, except ``without_source`` outputs that have none; finite weights.

    ``class_source``: the class token is a source too, behind the N.
    """
    anchors = selection.anchors.tolist()
    assert len(anchors) == k
    sources = [anchor for anchor in anchors if anchor != -1]
    assert len(anchors) - len(sources) == without_source
    assert len(set(sources)) == len(sources)
    assert all(0 <= source < n for source in sources)
    if selection.mix is not None:
        assert selection.mix.shape == (k, n + class_source)
        assert not finite or bool(torch.isfinite(selection.mix).all())


def mix_of(selection: Selection) -> Tensor:
    """Of one that merges."""
    assert selection.mix is not None
    return selection.mix


def check_batch(selector: Any, views: Sequence[TokenView], k: int) -> None:
    """A batch changes nothing: not one anchor, not one bit of a weight."""
    for together, view in zip(selector.select_many(views, k), views, strict=True):
        alone = selector.select(view, k)
        assert torch.equal(together.anchors, alone.anchors)
        assert together.merge_at == alone.merge_at
        if alone.mix is None:
            assert together.mix is None
        else:
            assert torch.equal(together.mix, alone.mix)


# Layer states made of random or degenerate tensors.


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
            "lm.next_attention": draw(heads, length, length).softmax(dim=-1),
            "lm.next_query": draw(2 * heads, length, 8),
            "lm.next_key": draw(heads, length, 8),
            "lm.parts": draw(4 * length, width).view(2, 2, length, width),
            "lm.query": draw(2 * heads, length, 8),
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
