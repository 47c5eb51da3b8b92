"""Attention of one new token per sequence to the keys that its slot holds already, however many those are."""

from __future__ import annotations

import math

import torch
from torch import Tensor

BLOCK, WARPS, STAGES = 64, 4, 3
"""Keys of a turn, warps of a program, blocks in flight."""


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
