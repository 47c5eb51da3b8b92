"""Where shapes vary no kernel is planned per shape; our causal kernel is used on GPUs alone and changes no branch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from sightline.backbones import attention
from sightline.device.kernels import MOST_ROWS, causal_attention, masked_attention, planless, usable


def planned() -> bool:
    switches: Any = torch.backends.cuda
    return bool(switches.cudnn_sdp_enabled())


def test_planned_kernels_are_off_while_shapes_vary_and_on_again_after() -> None:
    assert planned()
    with planless():
        assert not planned()
        assert not usable(torch.device("cpu"), torch.bfloat16, 128)
    assert planned()


def test_the_kernel_promises_the_shape_it_gives() -> None:
    query, key = torch.empty(2, 8, 5, 64, device="meta"), torch.empty(2, 2, 5, 64, device="meta")
    assert causal_attention(query, key, key, 0.1).shape == (2, 5, 8, 64)
    mask = torch.empty(2, 1, 3, 5, device="meta")
    assert masked_attention(query[:, :, :3], key, key, mask, 0.1).shape == (2, 3, 8, 64)


@pytest.mark.parametrize("branches", [0, 3])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_branches_are_cut_off_before_the_kernel_is_called(
    monkeypatch: pytest.MonkeyPatch, branches: int, scaling: float | None
) -> None:
    def stand_in(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        assert query.shape[2] == key.shape[2] == 9 - branches
        attended = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=True)
        return attended.transpose(1, 2)

    monkeypatch.setattr(attention, "causal_attention", stand_in)
    monkeypatch.setattr(attention, "masked_attention", attention.library_masked)
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 9, 16), torch.randn(2, 2, 9, 16), torch.randn(2, 2, 9, 16)
    mask = torch.zeros(2, 1, branches, 9) if branches else None
    ours, _ = attention.branch_attention_by_own_kernels(None, query, key, value, mask, scaling)
    plain, _ = attention.branch_attention(None, query, key, value, mask, scaling)
    assert torch.allclose(ours, plain, atol=1e-6)


def test_more_rows_than_a_program_holds_are_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Tensor:
        raise AssertionError("too many rows")

    monkeypatch.setattr(attention, "masked_attention", refuse)
    rows = MOST_ROWS // 2 + 1
    query, key = torch.randn(1, 4, rows, 16), torch.randn(1, 2, rows, 16)
    mask = torch.zeros(1, 1, rows, rows)
    assert attention.own_masked(query, key, key, mask, None).shape == (1, rows, 4, 16)
