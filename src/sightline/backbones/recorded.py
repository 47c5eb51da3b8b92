"""What a vision tower computes on the way, taken down while the model's own code runs it.

Attention is read where transformers hands it over: queries and keys, already rotated, and values of the blocks that
some signal asks for. Hidden states are the blocks' inputs. Hooks and the attention's name last for one call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sightline.backbones.attention import attending_as, dense_attention
from sightline.backbones.signals import HIDDEN_KINDS, attention_weights, block_index, hidden_indices, split_name

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
        self._states: dict[int, Tensor] = {}
        self._pairs: dict[int, list[tuple[Any, ...]]] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While open, a call of the tower is taken down."""
        if not self._hidden and not self._attended:
            yield
            return
        self._states.clear()
        self._pairs.clear()
        places = {id(_attention(block)): index for index, block in enumerate(self._blocks)}
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
                for config in _configurations(self._blocks):
                    stack.enter_context(_attending_aloud(config, self._pairs, self._attended, places))
            yield

    def _input(self, index: int) -> Any:
        def take(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            self._states[index] = arguments[0] if arguments else named["hidden_states"]

        return take

    def _output(self, module: nn.Module, arguments: Any, output: Any) -> None:
        self._states[len(self._blocks)] = output[0] if isinstance(output, tuple) else output

    def captured(self, images: int) -> list[dict[str, Tensor]]:
        """Per image: ``hidden:i`` (R, C); ``query:b``, ``key:b`` and ``value:b`` (H, R, d), ``bounds:b``, ``scale:b``.

        R rows of the tower belong to each of the images, which are alike. Bounds are the lengths of the sequences
        that attend among themselves in block b: tiles, windows. Scale is that of scores.
        """
        found: list[dict[str, Tensor]] = [{} for _ in range(images)]
        for index, states in self._states.items():
            for each, rows in zip(found, states.flatten(0, -2).chunk(images), strict=True):
                each[f"hidden:{index}"] = rows
        for index, pairs in self._pairs.items():
            lengths = [query.shape[2] for query, *_ in pairs for _ in range(query.shape[0])]
            if len(lengths) < images:  # all lie in one sequence, and a mask keeps them apart
                lengths = [sum(lengths) // images] * images
            parts = {
                name: torch.cat([_side_by_side(pair[place]) for pair in pairs], dim=1).chunk(images, dim=1)
                for place, name in enumerate(PARTS)
            }
            for number, each in enumerate(found):
                each.update({f"{name}:{index}": states[number] for name, states in parts.items()})
                each[f"bounds:{index}"] = torch.tensor(
                    lengths[number * len(lengths) // images :][: len(lengths) // images]
                )
                each[f"scale:{index}"] = torch.tensor(pairs[0][-1])
        return found


def _side_by_side(states: Tensor) -> Tensor:
    """(B, H, S, d) -> (H, B S, d)"""
    return states.transpose(0, 1).flatten(1, 2)


def _configurations(blocks: nn.ModuleList) -> list[Any]:
    """The distinct configurations that name the attention of these blocks."""
    found = [part.config for block in blocks for part in block.modules() if hasattr(part, "config")]
    return list({id(config): config for config in found if hasattr(config, "_attn_implementation")}.values())


@contextmanager
def _attending_aloud(config: Any, pairs: dict[int, Any], wanted: set[int], places: dict[int, int]) -> Iterator[None]:
    """While open, blocks of this configuration attend as they do, and those that are wanted say what they look at."""
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    usual = dense_attention if config._attn_implementation == "eager" else sdpa_attention_forward

    def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None, **how: Any) -> Any:
        index = places.get(id(module))
        if index in wanted:
            scale = how.get("scaling")
            scale = float(query.shape[-1]) ** -0.5 if scale is None else float(scale)
            pairs.setdefault(index, []).append((query, key, value, scale))
        return usual(module, query, key, value, attention_mask, **how)

    AttentionInterface.register(RECORDED, attend)
    with attending_as(config, RECORDED):
        yield


def received_attention(query: Tensor, key: Tensor, bounds: Tensor, scale: float) -> Tensor:
    """(R,) attention that each row receives, mean over heads and over the rows that see it; within each sequence."""
    lengths = bounds.tolist()
    parts = zip(torch.split(query, lengths, dim=1), torch.split(key, lengths, dim=1), strict=True)
    return torch.cat([attention_weights(q, k, scale).mean(dim=(0, 1)) for q, k in parts])
