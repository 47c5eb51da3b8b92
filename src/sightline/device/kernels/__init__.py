"""Attention for shapes that never come again: causal prefixes, and the few masked rows of branches behind them.

``sightline.backbones.attention`` says where these kernels take the place of cuDNN's.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

BLOCK, WARPS, STAGES = 64, 4, 3
"""Rows of a program, its warps, blocks of keys in flight: on an H200 the fastest of those tried, or within 2 %."""
WIDTHS = (64, 128)
"""Head sizes."""
MOST_ROWS = 64
"""Masked rows of all heads that share a key head: what one program holds in its registers."""


@torch.library.custom_op("sightline::causal_attention", mutates_args=())
def causal_attention(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """softmax(q k^T * scaling) v, each row over the keys up to its own: (B, S, H, d).

    query (B, H, S, d), key and value (B, Hkv, S, d) whose last axis is contiguous.
    """
    from sightline.device.kernels.attention_programs import causal

    batch, heads, length, width = query.shape
    output = query.new_empty(batch, length, heads, width)
    keys, values = _blocks(key), _blocks(value)
    causal[(-(-length // BLOCK), batch * heads)](
        query,
        keys,
        values,
        output,
        length,
        *query.stride()[:3],
        scaling / math.log(2),
        heads,
        heads // key.shape[1],
        BLOCK,
        width,
        STAGES,
        num_warps=WARPS,
    )
    return output


@torch.library.custom_op("sightline::masked_attention", mutates_args=())
def masked_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float) -> Tensor:
    """The same for few rows that do not see everything before them: (B, T, H, d).

    query (B, H, T, d), key and value (B, Hkv, S, d), mask (B, 1, T, S), negative where a row must not look.
    """
    from sightline.device.kernels.attention_programs import masked

    batch, heads, rows, width = query.shape
    shared, length = key.shape[1:3]
    group = heads // shared
    output = query.new_empty(batch, rows, heads, width)
    masked[(batch * shared,)](
        query,
        _blocks(key),
        _blocks(value),
        mask,
        output,
        length,
        rows,
        *query.stride()[:3],
        mask.stride(0),
        mask.stride(2),
        scaling / math.log(2),
        shared,
        group,
        max(16, 1 << (group * rows - 1).bit_length()),
        BLOCK,
        width,
        STAGES,
        num_warps=WARPS,
    )
    return output


def _blocks(states: Tensor) -> Any:
    """Keys or values (B, Hkv, S, d) as the GPU's copy engine reads them: block by block, zeros behind the end."""
    from sightline.device.kernels.attention_programs import TensorDescriptor

    return TensorDescriptor(states, list(states.shape), list(states.stride()), [1, 1, BLOCK, states.shape[-1]])


@causal_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    batch, heads, length, width = query.shape
    return query.new_empty(batch, length, heads, width)


@masked_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float) -> Tensor:
    batch, heads, rows, width = query.shape
    return query.new_empty(batch, rows, heads, width)


# One new token per sequence, and the keys that its slot holds already, however many those are.


@torch.library.custom_op("sightline::slot_attention", mutates_args=())
def slot_attention(
    query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scaling: float
) -> Tensor:
    """softmax(q [K, k]^T * scaling) [V, v], (B, 1, H, d).

    query (B, H, 1, d), key and value (B, Hkv, 1, d) of the new token; keys and values (B, Hkv, C, d) of which the first
    ``lengths[b]`` (B,) int32 count. What a sequence gets depends on its own slot alone.
    """
    from sightline.device.kernels.attention_programs import slots

    batch, heads, _, width = query.shape
    shared, capacity = keys.shape[1:3]
    group = heads // shared
    output = query.new_empty(batch, 1, heads, width)
    slots[(batch * shared,)](
        query,
        key,
        value,
        keys,
        values,
        lengths,
        output,
        capacity,
        *query.stride()[:2],
        *key.stride()[:2],
        *value.stride()[:2],
        scaling / math.log(2),
        shared,
        group,
        max(16, 1 << (group - 1).bit_length()),
        BLOCK,
        width,
        STAGES,
        num_warps=WARPS,
    )
    return output


@slot_attention.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scaling: float
) -> Tensor:
    batch, heads, _, width = query.shape
    return query.new_empty(batch, 1, heads, width)
