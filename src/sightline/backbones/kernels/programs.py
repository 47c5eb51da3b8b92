# mypy: ignore-errors
"""The kernel of ``sightline.backbones.kernels.causal``, in Triton's language."""

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

__all__ = ["TensorDescriptor", "causal"]


@triton.jit
def _absorb(query, key, value, shown, scale, highest, total, mixed, masked: tl.constexpr):
    """One block of keys and values into the running softmax: its highest exponent, total weight and mixed values."""
    scores = tl.dot(query, key.T) * scale
    if masked:
        scores = tl.where(shown, scores, float("-inf"))
    higher = tl.maximum(highest, tl.max(scores, 1))
    weights = tl.exp2(scores - higher[:, None])
    shrink = tl.exp2(highest - higher)
    total = total * shrink + tl.sum(weights, 1)
    mixed = tl.dot(weights.to(value.dtype), value, mixed * shrink[:, None])
    return higher, total, mixed


@triton.jit(do_not_specialize=["length"])
def causal(
    query,
    keys,
    values,
    output,
    length,
    query_batch,
    query_head,
    query_row,
    scale,
    heads: tl.constexpr,
    group: tl.constexpr,
    block: tl.constexpr,
    width: tl.constexpr,
    stages: tl.constexpr,
):
    """One program per ``block`` query rows of one head. ``keys`` and ``values`` are descriptors (B, Hkv, S, d).

    Blocks of keys before the program's own rows are seen whole; of the block beside them, row i sees keys up to i.
    Descriptors read zeros behind the end, where causality hides them. ``output`` is (B, S, H, d), contiguous.
    """
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * block  # the longest rows begin first
    batch, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    shared = head // group
    lane, column = tl.arange(0, block), tl.arange(0, width)
    real = (first + lane)[:, None] < length
    start = query + batch.to(tl.int64) * query_batch + head.to(tl.int64) * query_head
    own = tl.load(start + (first + lane)[:, None] * query_row + column[None, :], mask=real, other=0.0)
    highest = tl.full((block,), float("-inf"), tl.float32)
    total = tl.zeros((block,), tl.float32)
    mixed = tl.zeros((block, width), tl.float32)
    diagonal = lane[:, None] >= lane[None, :]
    for at in tl.range(0, first, block, num_stages=stages):
        key = keys.load([batch, shared, at, 0]).reshape(block, width)
        value = values.load([batch, shared, at, 0]).reshape(block, width)
        highest, total, mixed = _absorb(own, key, value, diagonal, scale, highest, total, mixed, False)
    key = keys.load([batch, shared, first, 0]).reshape(block, width)
    value = values.load([batch, shared, first, 0]).reshape(block, width)
    highest, total, mixed = _absorb(own, key, value, diagonal, scale, highest, total, mixed, True)
    place = output + ((batch.to(tl.int64) * length + first + lane) * heads + head)[:, None] * width + column[None, :]
    tl.store(place, (mixed / total[:, None]).to(output.dtype.element_ty), mask=real)
