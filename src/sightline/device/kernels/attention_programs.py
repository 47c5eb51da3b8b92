# mypy: ignore-errors
"""The kernels of ``sightline.device.kernels``, in Triton's language."""

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

__all__ = ["TensorDescriptor", "causal", "masked", "slots"]


@triton.jit
def _absorb(scores, value, highest, total, mixed):
    """One block of scores and values into the running softmax: its highest exponent, total weight and mixed values."""
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
    for at in tl.range(0, first, block, num_stages=stages):
        key = keys.load([batch, shared, at, 0]).reshape(block, width)
        value = values.load([batch, shared, at, 0]).reshape(block, width)
        highest, total, mixed = _absorb(tl.dot(own, key.T) * scale, value, highest, total, mixed)
    # A loop of one turn: the compiler lays it out better than the same lines without it, by 10 to 17 %.
    for at in tl.range(first, first + block, block, num_stages=1):
        key = keys.load([batch, shared, at, 0]).reshape(block, width)
        value = values.load([batch, shared, at, 0]).reshape(block, width)
        seen = (first + lane)[:, None] >= (at + lane)[None, :]
        scores = tl.where(seen, tl.dot(own, key.T) * scale, float("-inf"))
        highest, total, mixed = _absorb(scores, value, highest, total, mixed)
    place = output + ((batch.to(tl.int64) * length + first + lane) * heads + head)[:, None] * width + column[None, :]
    tl.store(place, (mixed / total[:, None]).to(output.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["length", "rows", "mask_batch", "mask_row"])
def masked(
    query,
    keys,
    values,
    mask,
    output,
    length,
    rows,
    query_batch,
    query_head,
    query_row,
    mask_batch,
    mask_row,
    scale,
    heads: tl.constexpr,
    group: tl.constexpr,
    most: tl.constexpr,
    block: tl.constexpr,
    width: tl.constexpr,
    stages: tl.constexpr,
):
    """One program per sequence and key head: the ``rows`` queries of all heads that share it, at most ``most``.

    ``mask`` (B, 1, rows, S) is negative where a row must not look; every row sees something. ``output`` is
    (B, rows, H, d), contiguous.
    """
    batch, shared = tl.program_id(0) // heads, tl.program_id(0) % heads
    lane, column, place = tl.arange(0, most), tl.arange(0, width), tl.arange(0, block)
    head, row = shared * group + lane // rows, lane % rows
    real = (lane < group * rows)[:, None]
    start = query + batch.to(tl.int64) * query_batch + head[:, None] * query_head + row[:, None] * query_row
    own = tl.load(start + column[None, :], mask=real, other=0.0)
    shown = mask + batch.to(tl.int64) * mask_batch + row[:, None] * mask_row
    highest = tl.full((most,), float("-inf"), tl.float32)
    total = tl.zeros((most,), tl.float32)
    mixed = tl.zeros((most, width), tl.float32)
    for at in tl.range(0, length, block, num_stages=stages):
        key = keys.load([batch, shared, at, 0]).reshape(block, width)
        value = values.load([batch, shared, at, 0]).reshape(block, width)
        inside = (at + place)[None, :] < length
        seen = tl.load(shown + (at + place)[None, :], mask=real & inside, other=0.0) >= 0
        # Finite, so that a block of which a row sees nothing leaves numbers that a later block outweighs.
        scores = tl.where(seen, tl.dot(own, key.T) * scale, -1e30)
        highest, total, mixed = _absorb(tl.where(inside, scores, float("-inf")), value, highest, total, mixed)
    to = output + ((batch.to(tl.int64) * rows + row) * (heads * group) + head)[:, None] * width + column[None, :]
    tl.store(to, (mixed / total[:, None]).to(output.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["capacity"])
def slots(
    query,
    key,
    value,
    keys,
    values,
    lengths,
    output,
    capacity,
    query_batch,
    query_head,
    key_batch,
    key_head,
    value_batch,
    value_head,
    scale,
    heads: tl.constexpr,
    group: tl.constexpr,
    most: tl.constexpr,
    block: tl.constexpr,
    width: tl.constexpr,
    stages: tl.constexpr,
):
    """One program per slot and key head: its new token's ``group`` queries over the slot's keys and the new one.

    ``keys`` and ``values`` are (B, Hkv, C, d), contiguous; ``output`` is (B, H, d), contiguous.
    """
    batch, shared = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    lane, column, place = tl.arange(0, most), tl.arange(0, width), tl.arange(0, block)
    real = (lane < group)[:, None]
    head = (shared * group + lane)[:, None]
    own = tl.load(query + batch * query_batch + head * query_head + column[None, :], mask=real, other=0.0)
    newest = tl.load(key + batch * key_batch + shared * key_head + column)
    said = tl.load(value + batch * value_batch + shared * value_head + column)
    # The new token sees itself: the running softmax begins with it.
    highest = tl.sum(own.to(tl.float32) * newest.to(tl.float32)[None, :], 1) * scale
    total = tl.full((most,), 1.0, tl.float32)
    mixed = tl.zeros((most, width), tl.float32) + said.to(tl.float32)[None, :]
    length = tl.load(lengths + batch)
    start = (batch * heads + shared) * capacity * width
    for at in tl.range(0, length, block, num_stages=stages):
        inside = at + place < length
        where = start + (at + place)[:, None] * width + column[None, :]
        seen = tl.load(keys + where, mask=inside[:, None], other=0.0)
        held = tl.load(values + where, mask=inside[:, None], other=0.0)
        scores = tl.where(inside[None, :], tl.dot(own, seen.T) * scale, float("-inf"))
        highest, total, mixed = _absorb(scores, held, highest, total, mixed)
    to = output + (batch * heads * group + head) * width + column[None, :]
    tl.store(to, (mixed / total[:, None]).to(output.dtype.element_ty), mask=real)
