"""Signals: what selectors need beyond projected tokens, computed only when asked for and billed to who asked.

Names read ``kind@layer``. Hidden states are indexed as transformers does (0 = embeddings, -1 = output of the last
block), attention and keys by block. The vision tower runs once, with whatever kernel it was loaded with; the input
of the blocks concerned is kept, and attention is recomputed from those alone. So asking for a signal changes no
other result.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from sightline.errors import SightlineError

HIDDEN_KINDS = ("vision.hidden", "vision.cls", "vision.hidden_mean")
"""Signals read from hidden states; every other vision signal is read from a block's attention inputs."""
BLOCK_KINDS = (
    "vision.cls_attention", "vision.received", "vision.key", "vision.value", "vision.cls_key", "vision.cls_query",
    "vision.cls_value",
)  # fmt: skip
PIXELS = "image.pixels"
LAYERLESS_KINDS = ("clip.image", "clip.text", PIXELS)
LANGUAGE_KINDS = (
    "lm.attention", "lm.attention_last", "lm.next_attention_last", "lm.key", "lm.value", "lm.bare_query", "lm.bare_key",
    "lm.rotary", "lm.input", "lm.normed", "lm.embeds",
)  # fmt: skip
"""Signals of the language layer that just ran, for methods that cut between layers."""
TOKEN_AXIS = {
    "vision.hidden": 0,
    "vision.hidden_mean": 0,
    "vision.cls_attention": 1,
    "vision.received": 0,
    "vision.key": 1,
    "vision.value": 1,
    "clip.image": 0,
    PIXELS: 0,
}
"""Of kinds that have a value per visual token, the axis along which the N of them lie; all others are of the image, its
class token or the question."""
PROMPT_AXES = {
    "lm.attention": (1, 2),
    "lm.attention_last": (1,),
    "lm.next_attention_last": (1,),
    "lm.key": (1,),
    "lm.value": (1,),
    "lm.bare_query": (1,),
    "lm.bare_key": (1,),
    "lm.rotary": (1,),
    "lm.input": (0,),
    "lm.normed": (0,),
    "lm.embeds": (0,),
}
"""The axes along which the prompt's positions lie: as shortened so far, of ``lm.embeds`` before any cut."""


def misnamed(name: str, inside: bool) -> str | None:
    """None for a signal that a method before (or ``inside``) the language model may name, else what is wrong."""
    kind, layer = split_name(name)
    if kind not in (*HIDDEN_KINDS, *BLOCK_KINDS, *LAYERLESS_KINDS, *LANGUAGE_KINDS):
        close = difflib.get_close_matches(kind, (*HIDDEN_KINDS, *BLOCK_KINDS, *LAYERLESS_KINDS, *LANGUAGE_KINDS), n=1)
        return f"there is no signal {kind}" + (f"; did you mean {close[0]}?" if close else "; see docs/signals.md")
    if inside != (kind in LANGUAGE_KINDS):
        return f"{name} is for methods that prune {'before' if inside else 'inside'} the language model"
    if kind in (*LAYERLESS_KINDS, *LANGUAGE_KINDS):
        return f"{kind} takes no layer, but {name} names one" if layer else None
    if kind == "vision.hidden_mean":
        first, _, last = layer.partition(":")
        if not (_is_integer(first) and _is_integer(last) and int(first) <= int(last)):
            return f"{name} needs a range of hidden states, for example {kind}@16:24"
    elif not _is_integer(layer):
        return f"{name} needs a layer, for example {kind}@-2"
    return None


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def split_name(name: str) -> tuple[str, str]:
    kind, _, layer = name.partition("@")
    return kind, layer


def of_tokens(name: str, signal: Tensor, first: int, count: int) -> Tensor:
    """The signal of ``count`` visual tokens from ``first`` on; one that has no value per token is theirs as it is."""
    axis = TOKEN_AXIS.get(split_name(name)[0])
    return signal if axis is None else signal.narrow(axis, first, count)


def of_positions(name: str, signal: Tensor, now: Tensor, uncut: Tensor) -> Tensor:
    """A language signal of some positions of the prompt alone: ``now`` among those left, ``uncut`` among all."""
    positions = (uncut if name == "lm.embeds" else now).to(signal.device)
    for axis in PROMPT_AXES[name]:
        signal = signal.index_select(axis, positions)
    return signal


def hidden_indices(names: Iterable[str], depth: int) -> frozenset[int]:
    """Which hidden states (0..depth) must be kept for these signals."""
    kept: set[int] = set()
    for name in names:
        kind, layer = split_name(name)
        if not kind.startswith("vision."):
            if kind == "clip.image":
                kept.add(_hidden_index(-2, depth, name))
            continue
        if ":" in layer:
            first, last = (int(part) for part in layer.split(":"))
            kept.update(_hidden_index(i, depth, name) for i in range(first, last + 1))
        elif kind in HIDDEN_KINDS:
            kept.add(_hidden_index(int(layer), depth, name))
        else:
            kept.add(block_index(name, depth))
    return frozenset(kept)


def _hidden_index(layer: int, depth: int, name: str) -> int:
    index = layer if layer >= 0 else depth + 1 + layer
    if not 0 <= index <= depth:
        raise SightlineError(f"signal {name}: the vision tower has hidden states 0..{depth}")
    return index


def block_index(name: str, depth: int) -> int:
    """The block an attention signal is about, as a non-negative index."""
    layer = int(split_name(name)[1])
    index = layer if layer >= 0 else depth + layer
    if not 0 <= index < depth:
        raise SightlineError(f"signal {name}: the vision tower has blocks 0..{depth - 1}")
    return index


def attention_weights(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """(H, Q, S) softmax(q k^T * scale) in float32."""
    return torch.softmax(query.float() @ key.float().transpose(-1, -2) * scale, dim=-1)


def class_token_signal(name: str, hidden: dict[str, Tensor], blocks: Any, heads: int, norm: str) -> Tensor:
    """Signals of a tower whose row 0 is a class token (CLIP).

    ``hidden`` maps ``hidden:i`` to (1 + N, C); a block has ``norm`` (layer norm before attention) and ``self_attn``.
    """
    kind, layer = split_name(name)
    depth = len(blocks)
    if kind == "vision.hidden_mean":
        first, last = (_hidden_index(int(part), depth, name) for part in layer.split(":"))
        return torch.stack([hidden[f"hidden:{i}"][1:] for i in range(first, last + 1)]).mean(0)
    if kind in HIDDEN_KINDS:
        rows = hidden[f"hidden:{_hidden_index(int(layer), depth, name)}"]
        return rows[0] if kind == "vision.cls" else rows[1:]
    index = block_index(name, depth)
    block = blocks[index]
    states = getattr(block, norm)(hidden[f"hidden:{index}"])
    attention = block.self_attn
    if kind in ("vision.value", "vision.cls_value"):
        value = _heads(attention.v_proj(states), heads)
        return value[:, 0] if kind == "vision.cls_value" else value[:, 1:]
    query, key = (_heads(projection(states), heads) for projection in (attention.q_proj, attention.k_proj))
    scale = float(query.shape[-1]) ** -0.5
    if kind == "vision.key":
        return key[:, 1:]
    if kind == "vision.cls_key":
        return key[:, 0]
    if kind == "vision.cls_query":
        return query[:, 0]
    if kind == "vision.cls_attention":
        return attention_weights(query[:, :1], key, scale)[:, 0, 1:]
    if kind == "vision.received":
        return attention_weights(query, key, scale).mean(dim=(0, 1))[1:]
    raise SightlineError(f"unknown signal {name}")


def pixels_of_tokens(values: Tensor, layout: tuple[tuple[int, int], ...]) -> Tensor:
    """(N, P) pixel values that each token is made from, in the order of the tokens.

    values: (tiles, 3, H, W), each tile cut into its rows x columns of ``layout``; or (patches, p), where the patches of
    a token lie together.
    """
    if values.dim() == 2:
        return values.reshape(sum(rows * columns for rows, columns in layout), -1)
    cut = [
        tile.unflatten(2, (columns, -1)).unflatten(1, (rows, -1)).permute(1, 3, 0, 2, 4).reshape(rows * columns, -1)
        for tile, (rows, columns) in zip(values, layout, strict=True)
    ]
    return torch.cat(cut)


def _heads(states: Tensor, heads: int) -> Tensor:
    """(S, C) -> (H, S, d)"""
    return states.view(states.shape[0], heads, -1).transpose(0, 1)


def rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of (..., S, d) states: x cos + rotate_half(x) sin."""
    half = states.shape[-1] // 2
    turned = torch.cat([-states[..., half:], states[..., :half]], dim=-1)
    return states * cos + turned * sin


def merged_patch_signal(
    name: str, hidden: dict[str, Tensor], rotary: tuple[Tensor, Tensor], blocks: Any, heads: int, merge: int
) -> Tensor:
    """Signals of a tower without class token whose tokens are groups of ``merge`` consecutive patches (Qwen3-VL)."""
    kind, _ = split_name(name)
    if kind not in ("vision.key", "vision.received"):
        raise SightlineError(
            f"signal {name} does not exist here: this vision tower has no class token and merges patches"
        )
    index = block_index(name, len(blocks))
    block = blocks[index]
    states = block.norm1(hidden[f"hidden:{index}"])
    query, key, _value = (_heads(part, heads) for part in block.attn.qkv(states).chunk(3, dim=-1))
    cos, sin = (table.float() for table in rotary)
    query, key = rotate(query.float(), cos, sin), rotate(key.float(), cos, sin)
    if kind == "vision.key":
        return key.reshape(heads, -1, merge, key.shape[-1]).mean(dim=2)
    received = attention_weights(query, key, float(query.shape[-1]) ** -0.5).mean(dim=(0, 1))
    return received.reshape(-1, merge).mean(dim=1)
