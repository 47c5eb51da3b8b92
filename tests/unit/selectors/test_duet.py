from __future__ import annotations

import numpy as np
import pytest
import torch

from sightline.core.selection import TokenView
from sightline.errors import SightlineError
from sightline.selectors.duet import Duet, local_merge
from tests.unit.selectors.contract import check_selection, degenerate_images, scene


def shown(view: TokenView) -> TokenView:
    """The scene under the names of the last block, which it has keys of alone."""
    return TokenView(
        view.tokens, view.cells, view.layout, view.query, view.boxes,
        {"vision.received@-1": view.signals["vision.received@-2"], "vision.key@-1": view.signals["vision.key@-1"]},
    )  # fmt: skip


def literal(view: TokenView, k: int, share: float, width: int) -> tuple[list[int], np.ndarray]:
    """The stage as it is described, token by token."""
    received = view.signals["vision.received@-1"].double().numpy()
    keys = view.signals["vision.key@-1"].double().numpy().mean(axis=0)
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    clusters = round(k * share)
    by_attention = np.argsort(-received, kind="stable").tolist()
    dominant, rest = by_attention[: k - clusters], by_attention[k - clusters :]
    pool = rest[: width * clusters]
    step = max(1, len(pool) // max(1, clusters))
    centres = pool[::step][:clusters]
    mix = np.zeros((k, len(received)))
    mix[np.arange(k), dominant + centres] = 1.0
    joins: dict[int, list[int]] = {}
    for token in pool:
        if token not in centres:
            joins.setdefault(int((keys[centres] @ keys[token]).argmax()), []).append(token)
    for cluster, tokens in joins.items():
        mix[k - clusters + cluster, tokens] = 1.0 / len(tokens)
    return dominant + centres, mix


def test_contract() -> None:
    for name, view in {"random": scene(0), **degenerate_images()}.items():
        n = view.tokens.shape[0]
        for k in range(1, n + 1):
            check_selection(Duet().select(shown(view), k), n, k, finite="NaN" not in name)


@pytest.mark.parametrize(("k", "share", "width"), [(8, 0.16, 4), (20, 0.3, 2), (12, 0.5, 4), (30, 0.2, 4), (5, 0.0, 4)])
def test_it_agrees_with_the_description(k: int, share: float, width: int) -> None:
    for seed in range(3):
        view = shown(scene(seed))
        chosen = Duet(share, width).select(view, k)
        anchors, mix = literal(view, k, share, width)
        assert chosen.anchors.tolist() == anchors
        assert chosen.mix is not None
        np.testing.assert_allclose(chosen.mix.numpy(), mix, atol=1e-6)


def test_a_small_plan_worked_by_hand() -> None:
    """Attention falls with the index. One dominant token, two clusters of width 2: centres 1 and 3, 2 and 4 join."""
    received = torch.tensor([0.5, 0.4, 0.3, 0.2, 0.1, 0.0])
    metric = torch.tensor([[9.0, 9.0], [1.0, 0.0], [0.1, 1.0], [0.0, 1.0], [0.2, 1.0], [1.0, 0.0]])
    anchors, mix = local_merge(received, metric, 1, 2, 2)
    assert anchors.tolist() == [0, 1, 3]
    assert mix.tolist() == [[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 0.5, 1, 0.5, 0]]


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SightlineError, match="width"):
        Duet(width=0)
