"""Signals: what selectors need beyond projected tokens, computed only when asked for and billed to who asked.

Names read ``kind@layer``. Hidden states are indexed as transformers does (0 = embeddings, -1 = output of the last
block), attention and keys by block. The vision tower runs once, with whatever kernel it was loaded with; the input
of the blocks concerned is kept, and attention is recomputed from those alone. So asking for a signal changes no
other result.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sightline.backbones.attention import PACKED, attending_as, bounds_of, dense_attention, packed_attention
from sightline.backbones.images import Pixels
from sightline.backbones.isolated_tokens import first_tensor, states_of
from sightline.core.prefix import Encoded
from sightline.core.selection import HIDDEN_KINDS, PIXELS, block_index, hidden_indices, split_name
from sightline.errors import SightlineError


def attention_weights(query: Tensor, key: Tensor, scale: float, seen: Tensor | None = None) -> Tensor:
    """(H, Q, S) softmax(q k^T * scale) in float32, over the keys that (Q, S) ``seen`` allows; 0 where it allows none.

    Keys of fewer heads are those of several queries each.
    """
    key = key if len(key) == len(query) else key.repeat_interleave(len(query) // len(key), dim=0)
    scores = query.float() @ key.float().transpose(-1, -2) * scale
    if seen is None:
        return torch.softmax(scores, dim=-1)
    return torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1).nan_to_num(0.0)


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


# What a vision tower computes on the way, taken down while the model's own code runs it.
#
# Attention is read where transformers hands it over: queries and keys, already rotated, and values of the blocks that
# some signal asks for. Hidden states are the blocks' inputs. Hooks and the attention's name last for one call.

RECORDED = "sightline_recorded"
PARTS = ("query", "key", "value")
"""What attention is handed."""


def blocks_of(tower: nn.Module) -> nn.ModuleList:
    """The transformer blocks of a tower: its longest list of modules that attend; none of a tower that does not."""
    lists = [part for part in tower.modules() if isinstance(part, nn.ModuleList) and len(part)]
    attending = [part for part in lists if _attention(part[0]) is not None]
    return max(attending, key=len, default=nn.ModuleList())


def _attention(block: nn.Module) -> nn.Module | None:
    """The module of a block that calls attention."""
    parts = (part for part in block.modules() if part is not block)
    return next((part for part in parts if type(part).__name__.endswith("Attention")), None)


class Record:
    """Hidden states and attention inputs of some blocks, rows in the tower's own order."""

    def __init__(self, blocks: nn.ModuleList, needs: frozenset[str]) -> None:
        self._blocks = blocks
        depth = len(blocks)
        self._hidden = hidden_indices((n for n in needs if split_name(n)[0] in (*HIDDEN_KINDS, "clip.image")), depth)
        self._attended = {
            block_index(name, depth)
            for name in needs
            if name.startswith("vision.") and split_name(name)[0] not in HIDDEN_KINDS
        }
        self.unrecorded = [block for index, block in enumerate(blocks) if index not in self._attended]
        """Blocks whose attention nobody asks for: how they are run is of no concern here."""
        self._states: dict[int, list[Tensor]] = {}
        self._pairs: dict[int, list[tuple[Any, ...]]] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While open, a call of the tower is taken down."""
        if not self._hidden and not self._attended:
            yield
            return
        self._states.clear()
        self._pairs.clear()
        with ExitStack() as stack:
            for index in self._hidden:
                last = index == len(self._blocks)
                block = self._blocks[index - 1] if last else self._blocks[index]
                hook = (
                    block.register_forward_hook(self._output)
                    if last
                    else block.register_forward_pre_hook(self._input(index), with_kwargs=True)
                )
                stack.callback(hook.remove)
            if self._attended:
                stack.enter_context(record_attention(self._blocks, self._record))
            yield

    def _record(self, index: int, *handed: Any) -> None:
        if index in self._attended:
            self._pairs.setdefault(index, []).append(handed)

    def _input(self, index: int) -> Any:
        def take(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            states = states_of(arguments, named)
            assert states is not None
            self._states.setdefault(index, []).append(states)

        return take

    def _output(self, module: nn.Module, arguments: Any, output: Any) -> None:
        self._states.setdefault(len(self._blocks), []).append(first_tensor(output))

    def captured(self, shares: Sequence[int]) -> list[dict[str, Tensor]]:
        """Per image: ``hidden:i`` (R, C); ``query:b``, ``key:b`` and ``value:b`` (H, R, d), ``bounds:b``, ``scale:b``.

        R rows of the tower belong to an image, by its share of all. Bounds are the lengths of the sequences that
        attend among themselves in block b: tiles, windows. Scale is that of scores. Where some rows of a sequence are
        not to be seen (padding), ``seen:b`` (T, S, S) says by whom each of its S rows is (alike images).
        """
        images = len(shares)
        found: list[dict[str, Tensor]] = [{} for _ in shares]
        for index, states in self._states.items():
            together = torch.cat([each.flatten(0, -2) for each in states])
            for each, rows in zip(found, torch.split(together, _dealt(len(together), shares)), strict=True):
                each[f"hidden:{index}"] = rows
        for index, pairs in self._pairs.items():
            lengths = [length for *_, own in pairs for length in own]
            dealt = _dealt(sum(lengths), shares)
            if len(lengths) < images:  # all lie in one sequence, and a mask keeps them apart
                lengths = dealt
            ends = np.searchsorted(np.cumsum(lengths), np.cumsum(dealt)) + 1
            parts = {
                name: torch.split(torch.cat([_side_by_side(pair[place]) for pair in pairs], dim=1), dealt, dim=1)
                for place, name in enumerate(PARTS)
            }
            for number, (each, first, end) in enumerate(zip(found, (0, *ends), ends, strict=False)):
                each.update({f"{name}:{index}": states[number] for name, states in parts.items()})
                each[f"bounds:{index}"] = torch.tensor(lengths[first:end])
                each[f"scale:{index}"] = torch.tensor(pairs[0][3])
            seen = _seen([mask for *_, mask, _ in pairs], images)
            for each, mine in zip(found, seen, strict=False):
                each[f"seen:{index}"] = mine
        return found


def as_captured(
    index: int, query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int], scale: float | None = None
) -> dict[str, Tensor]:
    """The same of one image whose block ``index`` attends with these (H, R, d), in sequences of such lengths."""
    parts = zip(PARTS, (query, key, value), strict=True)
    return {
        **{f"{name}:{index}": part for name, part in parts},
        f"bounds:{index}": torch.tensor(lengths),
        f"scale:{index}": torch.tensor(float(query.shape[-1]) ** -0.5 if scale is None else scale),
    }


def _dealt(rows: int, shares: Sequence[int]) -> list[int]:
    """So many rows by shares, which they can be dealt out by without a rest."""
    return [rows * share // sum(shares) for share in shares]


def _side_by_side(states: Tensor) -> Tensor:
    """(B, H, S, d) -> (H, B S, d)"""
    return states.transpose(0, 1).flatten(1, 2)


def _seen(masks: Sequence[Tensor | None], images: int) -> list[Tensor]:
    """Per image (T, S, S) whether row i of a sequence sees row j; nothing where no mask hides a row from another.

    Where all images lie in one sequence, what keeps them apart is no part of what each of them sees.
    """
    given = [mask[:, 0] == 0 if mask.is_floating_point() else mask[:, 0] for mask in masks if mask is not None]
    if not given:
        return []
    seen = torch.cat([each.expand(-1, each.shape[-1], -1) for each in given])
    if len(seen) < images:
        length = seen.shape[-1] // images
        seen = torch.stack([seen[0, k * length :, k * length :][:length, :length] for k in range(images)])
    return [] if bool(seen.all()) else list(seen.chunk(images))


def _configurations(blocks: Iterable[nn.Module]) -> list[Any]:
    """The distinct configurations that name the attention of these blocks."""
    found = [part.config for block in blocks for part in block.modules() if hasattr(part, "config")]
    return list({id(config): config for config in found if hasattr(config, "_attn_implementation")}.values())


Recorder = Callable[..., None]
"""Is told the block, its query, key, value (B, H, S, d), the scale of scores, the mask or None, and lengths: those of
the sequences that attend to themselves alone."""


@contextmanager
def record_attention(blocks: Iterable[nn.Module], record: Recorder) -> Iterator[None]:
    """While open, these blocks attend as they do and say what they look at, where attention is handed over at all."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import eager_mask, sdpa_mask

    places = {id(part): index for index, block in enumerate(blocks) for part in block.modules()}
    with ExitStack() as stack:
        for config in _configurations(blocks):
            named = config._attn_implementation
            eager, packed = named == "eager", named == PACKED
            usual = dense_attention if eager else packed_attention if packed else sdpa_attention_forward

            def attend(
                module: Any,
                query: Tensor,
                key: Tensor,
                value: Tensor,
                attention_mask: Any = None,
                usual: Any = usual,
                **how: Any,
            ) -> Any:
                index = places.get(id(module))
                if index is not None:
                    scale = how.get("scaling")
                    scale = float(query.shape[-1]) ** -0.5 if scale is None else float(scale)
                    ends = how.get("cu_seq_lens_q")
                    lengths = [query.shape[2]] * len(query) if ends is None else bounds_of(ends).lengths
                    record(index, query, key, value, scale, attention_mask, lengths)
                return usual(module, query, key, value, attention_mask, **how)

            name = f"{PACKED}_{RECORDED}" if packed else RECORDED
            AttentionInterface.register(name, attend)
            AttentionMaskInterface.register(name, eager_mask if eager else sdpa_mask)  # else none would be made
            stack.enter_context(attending_as(config, name))
        yield


def packs(blocks: nn.ModuleList) -> bool:
    """Whether blocks are handed the ends of sequences that lie one behind the other: images, windows of them."""
    attention = _attention(blocks[0]) if len(blocks) else None
    return attention is not None and "cu_seqlens" in inspect.signature(attention.forward).parameters


@contextmanager
def packed(blocks: nn.ModuleList) -> Iterator[None]:
    """While open, blocks that are handed such ends attend within all sequences of a length at once."""
    with ExitStack() as stack:
        for config in _configurations(blocks) if packs(blocks) else ():
            if config._attn_implementation == "sdpa":
                stack.enter_context(attending_as(config, PACKED))
        yield


Block = Callable[[Any, Tensor, dict[str, Any]], Any]
"""How one block is called: (block, hidden, arguments) -> what the block answers."""


def forward_block(block: Any, hidden: Tensor, arguments: dict[str, Any]) -> Any:
    """The block's own code, without the hooks on it."""
    return type(block).forward(block, hidden, **arguments)


@contextmanager
def unhooked(block: nn.Module) -> Iterator[None]:
    """While open, nobody listens to the parts of a block: transformers does so in a way that no compiler follows."""
    hooked = [(part, part._forward_hooks) for part in block.modules() if part is not block and part._forward_hooks]
    for part, _ in hooked:
        part._forward_hooks = OrderedDict()
    try:
        yield
    finally:
        for part, hooks in hooked:
            part._forward_hooks = hooks


@contextmanager
def called_by(call: Block | None, blocks: Sequence[nn.Module]) -> Iterator[None]:
    """While open, ``call`` runs these blocks, which attend as they do when it opens, whoever begins to listen then."""
    attending = [(config, config._attn_implementation) for config in _configurations(blocks)]

    def run(block: nn.Module, names: Sequence[str], *arguments: Any, **named: Any) -> Any:
        assert call is not None
        given = {**dict(zip(names, arguments, strict=False)), **named}
        with ExitStack() as stack:
            for config, name in attending:
                stack.enter_context(attending_as(config, name))
            stack.enter_context(unhooked(block))
            return call(block, given.pop(names[0]), given)

    with ExitStack() as stack:
        for block in blocks if call is not None else ():
            names = list(inspect.signature(block.forward).parameters)
            block.forward = partial(run, block, names)
            stack.callback(block.__dict__.pop, "forward")
        yield


def received_attention(query: Tensor, key: Tensor, bounds: Tensor, scale: float, seen: Tensor | None = None) -> Tensor:
    """(R,) attention that each row receives, mean over heads and over the rows of its sequence that anybody sees."""
    lengths = bounds.tolist()
    parts = zip(torch.split(query, lengths, dim=1), torch.split(key, lengths, dim=1), strict=True)
    if seen is None:
        return torch.cat([attention_weights(q, k, scale).mean(dim=(0, 1)) for q, k in parts])
    received = []
    for (q, k), mine in zip(parts, seen, strict=True):
        counted = mine.any(dim=0)
        received.append(attention_weights(q, k, scale, mine)[:, counted].mean(dim=(0, 1)))
    return torch.cat(received)


# Signals per visual token, from what was taken down of the tower's rows and which rows a token is made from.

ROWS = "token_rows"
"""Captured with the others: (N, m) rows of the tower, tile behind tile, that each token is made from."""
WEIGHTS = "token_weights"
"""(N, m) how much of a token comes from each of its rows; missing where all have the same part in it."""
CLASS = "class_rows"
"""(2,) where in every sequence its class token stands, and the row of the one that stands for the image or -1."""
CLASS_KINDS = ("vision.cls", "vision.cls_attention", "vision.cls_key", "vision.cls_query", "vision.cls_value")


def token_signal(name: str, captured: Mapping[str, Tensor], depth: int) -> Tensor:
    """A ``vision.*`` signal of one image.

    What a token's m rows have is averaged over them, as its own features are made from all of them, by the weights of
    an interpolation where there is one. In a tower with class tokens every tile has one: a token's class attention is
    that of its own tile, and the class token itself is that of the tile which shows the whole image.
    """
    kind, _ = split_name(name)
    rows, weights = captured[ROWS], captured.get(WEIGHTS)
    within, of_image = captured[CLASS].tolist() if CLASS in captured else (-1, -1)

    def of_tokens(values: Tensor, axis: int) -> Tensor:
        """The N tokens along the axis of the tower's rows."""
        taken = values.movedim(axis, 0)[rows]
        mixed = taken.mean(1) if weights is None else torch.einsum("nm,nm...->n...", weights.to(taken.dtype), taken)
        return mixed.movedim(0, axis)

    if kind in CLASS_KINDS and within < 0:
        raise SightlineError(f"signal {name} does not exist here: this vision tower has no class token")
    if kind in CLASS_KINDS and kind != "vision.cls_attention" and of_image < 0:
        raise SightlineError(f"signal {name} does not exist here: no tile with a class token shows the whole image")
    if kind in HIDDEN_KINDS:
        states = [captured[f"hidden:{index}"] for index in sorted(hidden_indices([name], depth))]
        if kind == "vision.cls":
            return states[0][of_image]
        return torch.stack([of_tokens(each, 0) for each in states]).mean(dim=0)
    index = block_index(name, depth)
    if kind in ("vision.query", "vision.key", "vision.value"):
        return of_tokens(captured[f"{kind.removeprefix('vision.')}:{index}"], 1)
    if kind in ("vision.cls_key", "vision.cls_query", "vision.cls_value"):
        return captured[f"{kind.removeprefix('vision.cls_')}:{index}"][:, of_image]
    query, key, bounds = (captured[f"{part}:{index}"] for part in ("query", "key", "bounds"))
    scale = float(captured[f"scale:{index}"])
    seen = captured.get(f"seen:{index}")
    if kind == "vision.received":
        return of_tokens(received_attention(query, key, bounds, scale, seen), 0)
    if kind == "vision.cls_attention":
        lengths = bounds.tolist()
        masks = [None] * len(lengths) if seen is None else [mine[within : within + 1] for mine in seen]
        tiles = zip(torch.split(query, lengths, dim=1), torch.split(key, lengths, dim=1), masks, strict=True)
        looked = [attention_weights(q[:, within : within + 1], k, scale, mine)[:, 0] for q, k, mine in tiles]
        return of_tokens(torch.cat(looked, dim=1), 1)
    raise SightlineError(f"signal {name} is not among what can be read from this vision tower")


def with_pixels_of(encoded: Sequence[Encoded], batch: Sequence[Pixels], device: torch.device) -> list[Encoded]:
    """The encoded images with what each was prepared as, brought to the model's device."""
    shown = [item.data.to(device, non_blocking=True) for item in batch]
    return [with_pixels(*pair) for pair in zip(encoded, shown, strict=True)]


def with_pixels(encoded: Encoded, shown: Tensor) -> Encoded:
    """The encoded image with ``Pixels.data``, on the model's device, from which its pixel values can be made again."""
    return replace(encoded, captured={**encoded.captured, PIXELS: shown})


# States of the tower that methods merge before they are projected.

MERGED = -2
"""The hidden state that published methods merge before LLaVA's projector: the one that it reads as published."""


def projector_mismatch(config: Any) -> str | None:
    """Why merged states cannot be projected, where a LLaVA's projector reads others than those, or several at once."""
    chosen, states = config.vision_feature_layer, int(config.vision_config.num_hidden_layers) + 1
    layers = [chosen] if isinstance(chosen, int) else list(chosen)
    if [layer % states for layer in layers] == [MERGED % states]:
        return None
    read = f"hidden state{'s' * (len(layers) > 1)} {', '.join(map(str, layers))}"
    return f"it merges states {MERGED} of the vision tower, and the projector reads {read}"
