"""Attention by kernels of our own and packed, patches cut by products, ranks of positions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from sightline.backbones import attention
from sightline.backbones.attention import PACKED, Bounds, pack, packed_attention, usable, without_planned_kernels
from sightline.backbones.isolated_tokens import by_products, patch_products
from sightline.backbones.qwen3_vl import _ranks
from sightline.backbones.towered import patch_product
from sightline.device.kernels import MOST_ROWS, causal_attention, masked_attention

# Packed attention: every image and window attends to itself alone, those of a length in one call.


@pytest.mark.parametrize("lengths", [[5], [4, 4, 4], [3, 6], [4, 2, 4, 3, 2]])
def test_sequences_that_lie_one_behind_the_other_do_not_mix(
    lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, sum(lengths), 8) for _ in range(3))
    ends, calls = torch.tensor([0, *lengths]).cumsum(0), list[int]()
    with monkeypatch.context() as patch:
        patch.setattr(
            attention,
            "scaled_dot_product_attention",
            lambda *states, **how: (calls.append(len(states[0])), scaled_dot_product_attention(*states, **how))[1],
        )
        ours, _ = packed_attention(None, query, key, value, None, scaling=0.4, cu_seq_lens_q=ends)
    assert len(calls) == len(set(lengths))
    assert sum(calls) == len(lengths)
    told, _ = packed_attention(None, query, key, value, None, scaling=0.4, cu_seq_lens_q=Bounds(lengths))
    assert torch.equal(ours, told)
    assert ours.shape == (1, sum(lengths), 2, 8)
    parts = zip(*(torch.split(states, lengths, dim=2) for states in (query, key, value)), strict=True)
    expected = [torch.softmax(q @ k.transpose(-1, -2) * 0.4, dim=-1) @ v for q, k, v in parts]
    assert torch.allclose(ours, torch.cat(expected, dim=2).transpose(1, 2), atol=1e-6)


def test_packing_is_switched_on_and_off_but_never_replaces_eager_attention() -> None:
    config = SimpleNamespace(_attn_implementation="sdpa")
    for before, packed, after in (("sdpa", True, PACKED), (PACKED, False, "sdpa"), ("eager", True, "eager")):
        config._attn_implementation = before
        pack(config, packed)
        assert config._attn_implementation == after


# Where shapes vary no kernel is planned per shape; our causal kernel is used on GPUs alone and changes no branch.


def test_planned_kernels_are_off_while_shapes_vary_and_on_again_after() -> None:
    switches: Any = torch.backends.cuda
    assert switches.cudnn_sdp_enabled()
    with without_planned_kernels():
        assert not switches.cudnn_sdp_enabled()
        assert not usable(torch.device("cpu"), torch.bfloat16, 128)
    assert switches.cudnn_sdp_enabled()


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


def test_kernels_promise_the_shape_they_give() -> None:
    query, key = torch.empty(2, 8, 5, 64, device="meta"), torch.empty(2, 2, 5, 64, device="meta")
    assert causal_attention(query, key, key, 0.1).shape == (2, 5, 8, 64)
    mask = torch.empty(2, 1, 3, 5, device="meta")
    assert masked_attention(query[:, :, :3], key, key, mask, 0.1).shape == (2, 3, 8, 64)


def test_more_rows_than_a_program_holds_are_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "masked_attention", lambda *_: pytest.fail("too many rows"))
    rows = MOST_ROWS // 2 + 1
    query, key = torch.randn(1, 4, rows, 16), torch.randn(1, 2, rows, 16)
    mask = torch.zeros(1, 1, rows, rows)
    assert attention.own_masked(query, key, key, mask, None).shape == (1, rows, 4, 16)


# Convolutions that cut patches, as products.


@pytest.mark.parametrize(("convolution", "shape"), [
    (nn.Conv2d(3, 8, 4, stride=4), (2, 3, 12, 16)),
    (nn.Conv2d(3, 8, (4, 2), stride=(4, 2), bias=False), (1, 3, 13, 9)),
    (nn.Conv3d(3, 8, (2, 4, 4), stride=(2, 4, 4)), (5, 3, 2, 4, 4)),
    (nn.Conv2d(3, 8, 4, stride=4), (3, 8, 8)),
    *((nn.Conv2d(3, 5, edge, stride=edge), (2, 3, 4 * edge, 6 * edge)) for edge in (2, 3)),
])  # fmt: skip
def test_products_are_the_convolution(convolution: nn.Conv2d, shape: tuple[int, ...]) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    expected = convolution(values)
    torch.testing.assert_close(patch_products(convolution, values), expected)
    if convolution.kernel_size in ((2, 2), (3, 3)):
        assert torch.allclose(patch_product(convolution, values), expected.flatten(2).transpose(1, 2), atol=1e-5)


def test_only_what_cuts_patches_is_replaced_and_put_back_even_when_something_fails() -> None:
    cutting, sliding, padded = nn.Conv2d(3, 4, 2, stride=2), nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 2, stride=2, padding=1)
    with by_products(nn.ModuleList([cutting, sliding, padded])):
        assert "forward" in vars(cutting)
        assert not {"forward"} & {*vars(sliding), *vars(padded)}
    assert "forward" not in vars(cutting)
    with pytest.raises(ZeroDivisionError), by_products(cutting):
        _ = 1 / 0
    assert "forward" not in vars(cutting)


# Compact positions: ranks from a presence mask are the ranks that sorting the distinct values gives.


@given(st.lists(st.integers(0, 29), min_size=1, max_size=60))
def test_ranks_among_those_that_occur(values: list[int]) -> None:
    given_values = torch.tensor(values)
    distinct, expected = torch.unique(given_values, sorted=True, return_inverse=True)
    ranks, count = _ranks(given_values, 30)
    assert torch.equal(ranks, expected)
    assert int(count) == len(distinct)
