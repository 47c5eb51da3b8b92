"""What every selector owes: K outputs, distinct anchors, the same answer alone and in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sightline.core.selection import Selection, TokenView

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
        "vision.key@-1": normal(HEADS, n, HEAD_WIDTH),
        "vision.cls_query@-1": normal(HEADS, HEAD_WIDTH),
        "vision.cls_key@-1": normal(HEADS, HEAD_WIDTH),
    }
    return TokenView(
        tokens=normal(n, WIDTH),
        cells=torch.zeros(n, 4, dtype=torch.float64),
        layout=((rows, columns),),
        query=normal(texts, WIDTH),
        boxes=torch.zeros(0, 4, dtype=torch.float64),
        signals=signals,
    )


def degenerate_images() -> dict[str, TokenView]:
    """Inputs on which published code divides by zero, repeats a pick or raises."""
    whole = scene(1)

    def every(change: Any) -> TokenView:
        signals = {name: change(signal.clone()) for name, signal in whole.signals.items()}
        return replace(whole, tokens=change(whole.tokens.clone()), signals=signals)

    def without_some(x: Tensor, value: float = 0.0) -> Tensor:
        if x.shape[0] == ROWS * COLUMNS:
            x[::3] = value
        elif x.dim() > 1 and x.shape[1] == ROWS * COLUMNS:
            x[:, ::3] = value
        return x

    return {
        "zeros": every(torch.zeros_like),
        "all tokens alike": every(torch.ones_like),
        "some zero tokens": every(without_some),
        "some NaN tokens": every(lambda x: without_some(x, float("nan"))),
        "no question": replace(whole, query=whole.query[:0]),
    }


def check_selection(selection: Selection, n: int, k: int, without_source: int = 0, finite: bool = True) -> None:
    """K outputs; anchors distinct and in range, except ``without_source`` outputs that have none; finite weights."""
    anchors = selection.anchors.tolist()
    assert len(anchors) == k
    sources = [anchor for anchor in anchors if anchor != -1]
    assert len(anchors) - len(sources) == without_source
    assert len(set(sources)) == len(sources)
    assert all(0 <= source < n for source in sources)
    if selection.mix is not None:
        assert selection.mix.shape == (k, n)
        assert not finite or bool(torch.isfinite(selection.mix).all())


def check_contract(selector: Any, extra_outputs: int = 0) -> None:
    """Every budget, degenerate inputs, and batches. ``extra_outputs`` have no anchor whenever K < N."""
    whole = scene(0)
    n = whole.tokens.shape[0]
    assert set(selector.needs) <= set(whole.signals)
    for name, view in {"random": whole, **degenerate_images()}.items():
        for k in range(1, n + 1) if name == "random" else (1, n // 3, n - 1, n):
            check_selection(selector.select(view, k), n, k, extra_outputs if k < n else 0, finite="NaN" not in name)
    check_batch(selector, [scene(seed) for seed in range(5)], k=n // 3)


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
