"""Packed attention: every image attends to itself alone, in one call or, where sizes differ, in several."""

from __future__ import annotations

import pytest
import torch

from sightline.backbones.attention import PACKED, pack, packed_attention
from sightline.backbones.towered import Bounds, patch_product


@pytest.mark.parametrize("lengths", [[5], [4, 4, 4], [3, 6]])
def test_sequences_that_lie_one_behind_the_other_do_not_mix(lengths: list[int]) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, sum(lengths), 8) for _ in range(3))
    ours, _ = packed_attention(None, query, key, value, None, scaling=0.4, cu_seq_lens_q=Bounds(lengths))
    assert ours.shape == (1, sum(lengths), 2, 8)
    parts = zip(*(torch.split(states, lengths, dim=2) for states in (query, key, value)), strict=True)
    expected = [torch.softmax(q @ k.transpose(-1, -2) * 0.4, dim=-1) @ v for q, k, v in parts]
    assert torch.allclose(ours, torch.cat(expected, dim=2).transpose(1, 2), atol=1e-6)


def test_packing_is_switched_on_and_off_but_never_replaces_eager_attention() -> None:
    class Config:
        _attn_implementation = "sdpa"

    config = Config()
    pack(config, True)
    assert config._attn_implementation == PACKED
    pack(config, False)
    assert config._attn_implementation == "sdpa"
    config._attn_implementation = "eager"
    pack(config, True)
    assert config._attn_implementation == "eager"


@pytest.mark.parametrize("kernel", [2, 3])
def test_a_patch_product_is_the_convolution(kernel: int) -> None:
    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(3, 5, kernel, stride=kernel)
    pixels = torch.randn(2, 3, 4 * kernel, 6 * kernel)
    expected = convolution(pixels).flatten(2).transpose(1, 2)
    assert torch.allclose(patch_product(convolution, pixels), expected, atol=1e-5)
