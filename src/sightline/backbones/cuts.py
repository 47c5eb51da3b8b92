"""Pruning between language layers: run some layers on the full prefix, cut, continue on what is left.

All text stays, in order; cache slots stay contiguous while logical positions keep their original values (or are
renumbered under ``compact``), and the mask stays causal. The choice looks at the prompt alone, so the yes and the no
branch share it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from sightline.backbones.language import Batch, LanguageModel, token_places
from sightline.backbones.signals import attention_weights
from sightline.core.prefix import Prefix
from sightline.core.selection import LayerSelector, LayerState, Selection
from sightline.core.selection_rules import (
    check_selection,
    in_native_order,
    on_behalf_of,
    output_parts,
    tiles_of,
    together,
)
from sightline.errors import SightlineError


@dataclass
class LayerCuts:
    """One method's cuts over a batch of prefixes that all have the same numbers of visual tokens and separators.

    After the run ``parts[b]`` (K, N) says how much of each survivor comes from each of the N original tokens (bool
    until something is mixed, then float64), and ``anchors[b]`` (K,) which one represents it.
    """

    selector: LayerSelector
    schedule: dict[int, int]
    prefixes: Sequence[Prefix]
    layouts: Sequence[tuple[tuple[int, int], ...]]
    keys: Sequence[str]
    by_tile: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Layer -> how many tokens of every tile continue past it; empty where a cut chooses among all tokens."""
    anchors: list[Tensor] = field(default_factory=list)
    places: list[Tensor] = field(default_factory=list)
    """Per prefix (n,) where in its span the surviving visual tokens stand."""
    parts: list[Tensor] = field(default_factory=list)
    signal_ms: float = 0.0
    select_ms: float = 0.0

    def __post_init__(self) -> None:
        for prefix in self.prefixes:
            self.anchors.append(torch.arange(prefix.k))
            self.places.append(token_places(prefix))
            self.parts.append(torch.eye(prefix.k, dtype=torch.bool))

    def wants(self, layer: int) -> bool:
        return layer in self.schedule

    def cut(self, batch: Batch, layer: int, layer_input: Tensor, model: LanguageModel) -> Batch:
        shortened = self._cut(batch, layer, layer_input, model)
        if layer == max(self.schedule):  # results may wait long to be read, and nothing looks at prefixes any more
            self.prefixes = ()
        return shortened

    def _cut(self, batch: Batch, layer: int, layer_input: Tensor, model: LanguageModel) -> Batch:
        k = self.schedule[layer]
        n, span = len(self.anchors[0]), batch.counts[0]
        if any(count != span for count in batch.counts):
            raise SightlineError("a batch that is cut between layers must have equal numbers of visual tokens")
        if k >= n:
            return batch
        pieces, placed = [], []
        for b, prefix in enumerate(self.prefixes):
            length = prefix.prompt_length - (prefix.k - n)
            visual = batch.start + self.places[b].to(batch.hidden.device)
            started = self._now(batch)
            signals = self._signals(batch, b, length, layer, layer_input, model, prefix)
            selecting = self._now(batch)
            state = LayerState(
                layer=layer,
                hidden=batch.hidden[b, :length],
                image=batch.start + self.places[b],
                source=self.anchors[b],
                layout=self.layouts[b],
                signals=signals,
                key=self.keys[b],
            )
            with on_behalf_of(self.selector.name):
                selection = self._chosen(state, k, prefix)
            self.signal_ms += (selecting - started) * 1e3
            self.select_ms += (self._now(batch) - selecting) * 1e3
            check_selection(selection, n, k, self.selector.name)
            selection = in_native_order(selection)
            anchors = selection.anchors.cpu()
            here = anchors.to(batch.hidden.device)
            tokens = batch.hidden[b, visual]
            if selection.mix is None:
                pieces.append(tokens[here])
                self.parts[b] = self.parts[b][anchors]
            else:
                mix = selection.mix.to(tokens.device, tokens.dtype)
                pieces.append(mix @ tokens)
                self.parts[b] = output_parts(selection.mix.cpu().double()) @ self.parts[b].double()
            left = self._left(b, anchors, span)
            placed.append(left.to(batch.hidden.device))
            self.anchors[b] = self.anchors[b][anchors]
            self.places[b] = torch.searchsorted(left, self.places[b][anchors])
        return self._shorten(batch, torch.stack(pieces), torch.stack(placed), layer)

    def _left(self, b: int, anchors: Tensor, span: int) -> Tensor:
        """(k + s,) the slots of a span that a cut leaves: those of the chosen tokens, and every separator."""
        stays = torch.ones(span, dtype=torch.bool)
        stays[self.places[b]] = False
        stays[self.places[b][anchors]] = True
        return stays.nonzero()[:, 0]

    def _chosen(self, state: LayerState, k: int, prefix: Prefix) -> Selection:
        """The method's choice among all that are left, or its choices within every tile put together."""
        if not self.by_tile:
            return self.selector.cut(state, k)
        uncut = prefix.start + token_places(prefix)
        chosen, sizes = [], []
        for tile, share in zip(tiles_of(state.layout), self.by_tile[state.layer], strict=True):
            alone = tile.among(state, uncut)
            left = len(alone.image)
            selection = self.selector.cut(alone, share) if share < left else Selection(torch.arange(left))
            check_selection(selection, left, min(share, left), self.selector.name)
            ordered = in_native_order(selection)
            chosen.append(replace(ordered, anchors=ordered.anchors.cpu()))
            sizes.append(left)
        return together(chosen, sizes)

    @staticmethod
    def _now(batch: Batch) -> float:
        if batch.hidden.is_cuda:
            torch.cuda.synchronize(batch.hidden.device)
        return time.perf_counter()

    def _shorten(self, batch: Batch, tokens: Tensor, left: Tensor, layer: int) -> Batch:
        """The batch with every span cut to its slots ``left`` (B, m), the (B, k, D) tokens at their new places."""
        start, end = batch.start, batch.start + batch.counts[0]
        width, span = left.shape[1], batch.hidden[:, start:end]
        inner = span.gather(1, left[:, :, None].expand(-1, -1, span.shape[2]))
        where = torch.stack(self.places).to(left.device)
        inner = inner.scatter(1, where[:, :, None].expand_as(tokens), tokens)
        hidden = torch.cat([batch.hidden[:, :start], inner, batch.hidden[:, end:]], dim=1)
        visual = batch.positions[:, :, start:end].gather(2, left.expand(batch.positions.shape[0], -1, -1))
        positions = torch.cat([batch.positions[:, :, :start], visual, batch.positions[:, :, end:]], dim=2)
        segments = torch.cat([batch.segments[:, : start + width], batch.segments[:, end:]], dim=1)
        index = left[:, :, None]
        deepstack = tuple(
            level.gather(1, index.expand(-1, -1, level.shape[2])) if level_index > layer else level
            for level_index, level in enumerate(batch.deepstack)
        )
        return Batch(hidden, positions, segments, deepstack, start, [width] * len(batch.counts), batch.branches)

    def _signals(
        self, batch: Batch, b: int, length: int, layer: int, layer_input: Tensor, model: LanguageModel, prefix: Prefix
    ) -> dict[str, Tensor]:
        states = layer_input[b, :length]
        computed: dict[str, Any] = {}
        for name in self.selector.needs:
            if name == "lm.input":
                computed[name] = states
            elif name == "lm.rotary":
                cos, sin = model.rotary(states[None], batch.positions[:, b : b + 1, :length])
                computed[name] = torch.stack([cos[0], sin[0]])
            elif name in ("lm.bare_query", "lm.bare_key"):
                positions = batch.positions[:, b : b + 1, :length]
                query, key, _, _ = model.attention_inputs(layer, states, positions, bare=True)
                computed[name] = query if name == "lm.bare_query" else key
            elif name in ("lm.attention", "lm.attention_last", "lm.key", "lm.value"):
                positions = batch.positions[:, b : b + 1, :length]
                query, key, value, scale = model.attention_inputs(layer, states, positions)
                if name == "lm.key":
                    computed[name] = key
                elif name == "lm.value":
                    computed[name] = value
                else:
                    computed[name] = causal_attention(query, key, scale, last_only=name == "lm.attention_last")
            elif name == "lm.next_attention_last":
                following = min(layer + 1, len(model.layers) - 1)
                positions = batch.positions[:, b : b + 1, :length]
                query, key, _, scale = model.attention_inputs(following, batch.hidden[b, :length], positions)
                computed[name] = causal_attention(query, key, scale, last_only=True)
            elif name == "lm.normed":
                computed[name] = model.norm(batch.hidden[b, :length])
            elif name == "lm.embeds":
                computed[name] = prefix.embeds[: prefix.prompt_length]
            else:
                raise SightlineError(f"selector {self.selector.name} needs {name}, which no language layer provides")
        return computed


def causal_attention(query: Tensor, key: Tensor, scale: float, *, last_only: bool) -> Tensor:
    """(H, L, L) causal attention, or its last row (H, L)."""
    key = key.repeat_interleave(query.shape[0] // key.shape[0], dim=0)
    if last_only:
        return attention_weights(query[:, -1:], key, scale)[:, 0]
    scores = query.float() @ key.float().transpose(-1, -2) * scale
    length = scores.shape[-1]
    future = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
    return torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
