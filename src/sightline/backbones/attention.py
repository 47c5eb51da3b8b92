"""Attention without dense masks and without splitting batches.

Language layers: causal over the shared prefix, a few masked rows behind it. Sequences are padded on the right, so
causality alone keeps real tokens from seeing padding. That leaves only the answer branches in need of a mask:
(B, 1, T, S) for their T rows instead of (B, 1, S, S), which no fast kernel accepts.

A sequence that is continued token by token attends from its slot of a cache (``slot_attention``).

Vision towers that line up the patches of all images: those of a length, images or windows, attend side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, cached_property
from importlib.util import find_spec
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.weak import WeakIdKeyDictionary

from sightline.device import kernels
from sightline.device.kernels import MOST_ROWS, WIDTHS, causal_attention, masked_attention
from sightline.device.work import on_device

NAME = "sightline_branches"
DENSE = "sightline_dense"
SLOTS = "sightline_slots"
SLOTS_OWN_KERNEL = "sightline_slots_own_kernel"
OWN_KERNEL = "sightline_branches_own_kernel"
TAKING = "sightline_taking"
PACKED = "sightline_flash_packed"
"""Towers hand packed sequences, with their bounds, to implementations whose name speaks of flash attention."""


# Whose kernels attend. cuDNN's, which PyTorch prefers on recent GPUs, is planned anew for every shape, 50 ms each time:
# more than the attention of many batches. An audit's batches all have shapes of their own, and so has every token of an
# answer. There cuDNN stays off (``planless``), and in half precision kernels of our own take its place: compiled once,
# nearly as fast, and about twice as fast as the flash attention that PyTorch would fall back to (docs/cost.md).


def without_planned_kernels() -> AbstractContextManager[None]:
    """While open, nothing attends with kernels that are planned for every shape anew."""
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


def usable(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether the kernel takes the place of cuDNN's: where it can, and cuDNN is off."""
    cuda: Any = torch.backends.cuda
    return not cuda.cudnn_sdp_enabled() and supported(device, dtype, width)


def supported(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether our kernels run there: in half precision, on a GPU that copies blocks by itself."""
    half = dtype in (torch.bfloat16, torch.float16)
    return device.type == "cuda" and half and width in WIDTHS and _copies_blocks(device)


@cache
def _copies_blocks(device: torch.device) -> bool:
    return find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= (9, 0)


Causal = Callable[[Tensor, Tensor, Tensor, float | None], Tensor]
"""Causal attention: (query, key, value, scaling) -> (B, S, H, d)."""
Masked = Callable[[Tensor, Tensor, Tensor, Tensor, float | None], Tensor]
"""Attention of few rows with a mask: (query, key, value, mask, scaling) -> (B, T, H, d)."""


def library_causal(query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
    grouped = query.shape[1] != key.shape[1]
    attended = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=grouped)
    return attended.transpose(1, 2)


def library_masked(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None) -> Tensor:
    """Query heads that share a key head become rows of it: nothing is repeated in memory."""
    batch, heads, rows, width = query.shape
    groups = heads // key.shape[1]
    folded = query.reshape(batch, key.shape[1], groups * rows, width)
    attended = scaled_dot_product_attention(
        folded, key, value, attn_mask=mask.repeat(1, 1, groups, 1) if groups > 1 else mask, scale=scaling
    )
    return attended.reshape(batch, heads, rows, width).transpose(1, 2)


def own_causal(query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
    attended: Tensor = causal_attention(query, key, value, _scale(query, scaling))
    return attended


def own_masked(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None) -> Tensor:
    if query.shape[1] // key.shape[1] * query.shape[2] > MOST_ROWS:
        return library_masked(query, key, value, mask, scaling)
    attended: Tensor = masked_attention(query, key, value, mask, _scale(query, scaling))
    return attended


def _scale(query: Tensor, scaling: float | None) -> float:
    return float(query.shape[-1] ** -0.5) if scaling is None else scaling


def branch_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    *,
    causal: Causal = library_causal,
    masked: Masked = library_masked,
    taken: list[Tensor] | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """softmax(q k^T * scaling + mask) v, in the calling convention of transformers.

    query (B, H, S, d), key and value (B, Hkv, S, d). ``attention_mask`` (B, 1, T, S) holds the rows of the last T
    queries, the branches; all queries before them are causal. None means that there are no branches. Whoever goes on
    with the sequences finds key and value in the list ``taken``.
    """
    if taken is not None:
        taken += [key, value]
    if attention_mask is None:
        return causal(query, key, value, scaling), None
    shared = query.shape[2] - attention_mask.shape[2]
    prefix = causal(query[:, :, :shared], key[:, :, :shared], value[:, :, :shared], scaling)
    branches = masked(query[:, :, shared:], key, value, attention_mask, scaling)
    return torch.cat([prefix, branches], dim=1), None


def branch_attention_by_own_kernels(*states: Any, **how: Any) -> tuple[Tensor, None]:
    return branch_attention(*states, causal=own_causal, masked=own_masked, **how)


def dense_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    taken: list[Tensor] | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Step by step as the eager attention of transformers: products in the model's precision, softmax in float32."""
    if taken is not None:
        taken += [key, value]
    groups = query.shape[1] // key.shape[1]
    keys, values = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ keys.mT * _scale(query, scaling)
    if attention_mask is not None:
        scores = scores + attention_mask
    return (torch.softmax(scores, -1, dtype=torch.float32).to(query.dtype) @ values).transpose(1, 2), None


class LayerSlots(NamedTuple):
    """What one layer remembers of the sequences that are being continued."""

    keys: Tensor
    """(B, Hkv, C, d)"""
    values: Tensor
    lengths: Tensor
    """(B,) int32: how many of the C keys are a sequence's."""


Slotted = Callable[[Tensor, Tensor, Tensor, LayerSlots, float | None], Tensor]
"""Attention of one new token per sequence: (query, key, value, slots, scaling) -> (B, 1, H, d)."""


def library_slotted(query: Tensor, key: Tensor, value: Tensor, slots: LayerSlots, scaling: float | None) -> Tensor:
    batch, heads, _, width = query.shape
    grouped = query.reshape(batch, key.shape[1], -1, width)
    held = (grouped @ slots.keys.mT).float()
    beyond = torch.arange(held.shape[-1], device=held.device) >= slots.lengths[:, None, None, None]
    scores = torch.cat([held.masked_fill(beyond, float("-inf")), (grouped @ key.mT).float()], dim=-1)
    weights = torch.softmax(scores * _scale(query, scaling), dim=-1).to(query.dtype)
    mixed = weights[..., :-1] @ slots.values + weights[..., -1:] * value
    return mixed.reshape(batch, 1, heads, width)


def own_slotted(query: Tensor, key: Tensor, value: Tensor, slots: LayerSlots, scaling: float | None) -> Tensor:
    attended: Tensor = kernels.slot_attention(query, key, value, *slots, _scale(query, scaling))
    return attended


def slot_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    *,
    slots: LayerSlots,
    taken: list[Tensor],
    slotted: Slotted = library_slotted,
    **_: Any,
) -> tuple[Tensor, None]:
    """softmax(q [K, k]^T * scaling) [V, v] for one new token per sequence: its slot's keys, and its own.

    query (B, H, 1, d), key and value (B, Hkv, 1, d), which go into ``taken``: the slot itself is not written to.
    """
    taken += [key, value]
    return slotted(query, key, value, slots, scaling), None


def slot_attention_by_own_kernel(*states: Any, **how: Any) -> tuple[Tensor, None]:
    return slot_attention(*states, slotted=own_slotted, **how)


def taking_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    *,
    taken: list[Any],
    **_: Any,
) -> tuple[Tensor, None]:
    """Attends to nothing: what it was handed, and the scale of scores, go into ``taken``."""
    taken += [query, key, value, _scale(query, scaling)]
    return torch.zeros_like(query).transpose(1, 2), None


def with_branch_attention(config: Any, own: bool = False) -> AbstractContextManager[None]:
    """While open, language layers of this configuration attend through ``branch_attention``.

    ``own`` chooses our kernels instead of the library's; see ``usable``.
    """
    return attending_as(config, OWN_KERNEL if own else NAME)


@cache
def _make_known() -> None:
    """Tells transformers the language layers' functions by name, once."""
    from transformers import AttentionInterface

    for name, function in (
        (NAME, branch_attention),
        (OWN_KERNEL, branch_attention_by_own_kernels),
        (DENSE, dense_attention),
        (SLOTS, slot_attention),
        (TAKING, taking_attention),
        (SLOTS_OWN_KERNEL, slot_attention_by_own_kernel),
        (PACKED, packed_attention),
    ):
        AttentionInterface.register(name, function)


@contextmanager
def attending_as(config: Any, name: str) -> Iterator[None]:
    """While open, layers of this configuration attend by the function of this name."""
    _make_known()
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before


class Bounds:
    """Lengths of sequences that lie one behind the other, which a block may difference and list while it is traced.

    A tensor's values are unknown to a compiler; these are plain numbers. Code that needs no more than ``sequences``
    and ``alike`` serves images of any size without being compiled again.
    """

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.sequences = len(lengths)
        self.alike = len(set(lengths)) == 1
        self._order: Tensor | None = None

    def __getitem__(self, _: slice) -> Bounds:
        return self

    def __sub__(self, _: Bounds) -> Bounds:
        return self

    def tolist(self) -> list[int]:
        return self.lengths

    @cached_property
    def by_length(self) -> dict[int, int]:
        """How many sequences there are of each length, shortest first."""
        return {length: self.lengths.count(length) for length in sorted(set(self.lengths))}

    def order(self, device: torch.device) -> Tensor:
        """(sum of P,) rows, those of short sequences first; brought there once for all blocks of a tower."""
        if self._order is None:
            sequences = sorted(zip(self.lengths, accumulate(self.lengths), strict=True))
            rows = torch.cat([torch.arange(end - length, end) for length, end in sequences])
            self._order = on_device(rows, device)
        return self._order


_known_bounds: Any = WeakIdKeyDictionary()


def ends_for(config: Any, lengths: list[int]) -> Any:
    """What blocks of a tower with this configuration are handed as the ends of the images of a batch.

    Where they attend to all images in one call, (B + 1,) ends on the host: code compiled for one set of lengths serves
    every other. Where blocks part the images themselves, plain numbers.
    """
    bounds = Bounds(lengths)
    if config._attn_implementation != PACKED:
        return bounds
    ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
    _known_bounds[ends] = bounds
    return ends


def bounds_of(ends: Any) -> Bounds:
    """Of (B + 1,) ends of sequences, as towers hand them to every block: read from the device once for all of them."""
    if isinstance(ends, Bounds):
        return ends
    if ends not in _known_bounds:
        _known_bounds[ends] = Bounds(ends.diff().tolist())
    found: Bounds = _known_bounds[ends]
    return found


@torch.library.custom_op("sightline::packed_attention", mutates_args=())
def _packed_attention(query: Tensor, key: Tensor, value: Tensor, ends: Tensor, scaling: float | None) -> Tensor:
    """As below, (1, sum of P, H, d): one step for a compiler, which else would want code for every set of lengths."""
    return packed_attention(None, query, key, value, None, scaling, ends)[0].clone()


@_packed_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, ends: Tensor, scaling: float | None) -> Tensor:
    batch, heads, rows, width = query.shape
    return query.new_empty(batch, rows, heads, width)


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    cu_seq_lens_q: Any = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """softmax(q k^T * scaling) v within each of the sequences that lie one behind the other, (1, H, sum of P, d).

    ``cu_seq_lens_q`` are their ends, or ``Bounds``. One call for every length that there is: of the windows of a
    picture only those at its edges are smaller.
    """
    if isinstance(cu_seq_lens_q, Tensor) and torch.compiler.is_compiling():
        return _packed_attention(query, key, value, cu_seq_lens_q, scaling), None
    bounds, handed = bounds_of(cu_seq_lens_q), (query, key, value)
    if bounds.alike:
        return _attend_alike(handed, bounds.sequences, scaling), None
    if len(bounds.by_length) == bounds.sequences:
        parts = zip(*(torch.split(states, bounds.lengths, dim=2) for states in handed), strict=True)
        return torch.cat([_attend_alike(part, 1, scaling) for part in parts], dim=1), None
    order = bounds.order(query.device)
    rows = [length * count for length, count in bounds.by_length.items()]
    parts = zip(*(torch.split(states[:, :, order], rows, dim=2) for states in handed), strict=True)
    counts = bounds.by_length.values()
    attended = torch.cat(
        [_attend_alike(part, count, scaling) for part, count in zip(parts, counts, strict=True)], dim=1
    )
    return torch.empty_like(attended).index_copy_(1, order, attended), None


def _attend_alike(handed: tuple[Tensor, ...], sequences: int, scaling: float | None) -> Tensor:
    """(1, B P, H, d) of B sequences of one length, three times (1, H, B P, d)."""
    query, key, value = (_side_by_side(states, sequences) for states in handed)
    return scaled_dot_product_attention(query, key, value, scale=scaling).transpose(1, 2).flatten(0, 1)[None]


def _side_by_side(states: Tensor, sequences: int) -> Tensor:
    """(1, H, B P, d) -> (B, H, P, d)"""
    _, heads, _, width = states.shape
    return states[0].transpose(0, 1).reshape(sequences, -1, heads, width).transpose(1, 2)


def pack(config: Any, packed: bool) -> None:
    """Whether blocks of this configuration attend to all images in one call instead of one after the other."""
    _make_known()
    if config._attn_implementation in ("sdpa", PACKED):
        config._attn_implementation = PACKED if packed else "sdpa"
