from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sightline.core.selection import TokenView
from sightline.errors import SightlineError
from sightline.selectors.vscan import VScan, scans, windows
from tests.unit.selectors.contract import check_contract, scene


def literal(view: TokenView, k: int, side: int) -> tuple[list[int], np.ndarray]:
    """The scans and the merge as they are described, on a grid, in numpy."""
    deep, shallow = (view.signals[f"vision.cls_attention@{layer}"].double().numpy().mean(axis=0) for layer in (-2, 5))
    tokens = view.tokens.double().numpy()
    ((rows, columns),) = view.layout
    pools: dict[tuple[int, int], list[int]] = {}
    for i in np.argsort(-shallow, kind="stable"):
        pools.setdefault((i // columns // side, i % columns // side), []).append(int(i))
    kept: list[int] = []
    while len(kept) < k // 2:
        turn = sorted((pool.pop(0) for pool in pools.values() if pool), key=lambda i: -shallow[i])
        kept += turn[: k // 2 - len(kept)]
    kept += [int(i) for i in np.argsort(-deep, kind="stable") if i not in kept][: k - k // 2]
    kept.sort()
    unit = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
    mix = np.zeros((k, rows * columns))
    for i in range(rows * columns):
        mix[kept.index(i) if i in kept else int((unit[kept] @ unit[i]).argmax()), i] = 1.0
    return kept, mix / mix.sum(axis=1, keepdims=True)


def test_contract() -> None:
    check_contract(VScan())


@pytest.mark.parametrize("k", [1, 2, 9, 20, 41])
def test_it_agrees_with_the_description(k: int) -> None:
    for seed in range(3):
        for side in (2, 3, 6):
            view = scene(seed)
            chosen = VScan(side=side).select(view, k)
            anchors, mix = literal(view, k, side)
            assert chosen.anchors.tolist() == anchors
            assert chosen.mix is not None
            np.testing.assert_allclose(chosen.mix.numpy(), mix, atol=1e-6)


def test_windows_end_at_tiles() -> None:
    assert windows(((2, 3), (1, 2)), 2).tolist() == [0, 0, 1, 0, 0, 1, 2, 2]


def test_every_window_gets_its_turn_before_any_gets_two() -> None:
    """Three windows of two tokens. The first window has the highest shallow attention, and still waits its turn."""
    shallow = torch.tensor([9.0, 8.0, 3.0, 1.0, 5.0, 4.0])
    deep = torch.tensor([9.0, 0.0, 0.0, 7.0, 0.0, 0.0])
    window = torch.tensor([0, 0, 1, 1, 2, 2])
    assert scans(deep, shallow, window, 0, 3).tolist() == [0, 2, 4]
    assert scans(deep, shallow, window, 0, 4).tolist() == [0, 1, 2, 4]
    assert scans(deep, shallow, window, 1, 3).tolist() == [0, 2, 3, 4], "what the windows took is not counted twice"


def test_the_same_tokens_on_another_grid_lie_in_other_windows() -> None:
    view = scene(3)
    turned = replace(view, layout=((view.layout[0][1], view.layout[0][0]),))
    assert not torch.equal(VScan(side=2).select(view, 20).anchors, VScan(side=2).select(turned, 20).anchors)
    with pytest.raises(SightlineError, match="side"):
        VScan(side=0)
