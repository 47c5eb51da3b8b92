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
from torch.nn.functional import one_hot

from sightline.backbones.language import Batch, LanguageModel
from sightline.backbones.signals import attention_weights, of_positions, of_tokens
from sightline.core.prefix import Prefix
from sightline.core.selection import (
    Budget,
    LayerSelector,
    LayerState,
    Layout,
    Selection,
    TokenView,
    check_selection,
    in_native_order,
    on_behalf_of,
    output_parts,
)
from sightline.errors import SightlineError

# What a budget is counted over: the whole image, or its tiles one by one, chosen from apart and put together again.


@dataclass(frozen=True)
class CountedPart:
    """Consecutive visual tokens of an image with a budget of their own."""

    first: int
    layout: Layout
    tile: int | None = None
    """Which block of the image's layout it is; None: the whole image."""

    @property
    def n(self) -> int:
        return sum(rows * columns for rows, columns in self.layout)

    def of(self, view: TokenView) -> TokenView:
        """What a selector sees of this part alone; drawn selections differ from tile to tile."""
        if self.tile is None:
            return view
        here = slice(self.first, self.first + self.n)
        return replace(
            view,
            tokens=view.tokens[here],
            cells=view.cells[here],
            layout=self.layout,
            signals={name: of_tokens(name, signal, self.first, self.n) for name, signal in view.signals.items()},
            key=f"{view.key}:{self.tile}",
        )

    def among(self, state: LayerState, uncut: Tensor) -> LayerState:
        """What a method between layers sees of this part alone: the prompt without the tokens of other tiles.

        ``uncut`` (N,) are the positions of all visual tokens before any cut. Attention to other tiles is left out, not
        shared out among what stays.
        """
        own = (state.source >= self.first) & (state.source < self.first + self.n)
        now = _without(state.hidden.shape[0], state.image[~own])
        length = state.hidden.shape[0] + len(uncut) - len(state.image)
        before = _without(length, torch.cat([uncut[: self.first], uncut[self.first + self.n :]]))
        return replace(
            state,
            hidden=state.hidden.index_select(0, now.to(state.hidden.device)),
            image=torch.searchsorted(now, state.image[own]),
            source=state.source[own] - self.first,
            layout=self.layout,
            signals={name: of_positions(name, signal, now, before) for name, signal in state.signals.items()},
            key=f"{state.key}:{self.tile}",
        )


def _without(length: int, positions: Tensor) -> Tensor:
    """0..length-1 but for these positions, ascending."""
    stays = torch.ones(length, dtype=torch.bool)
    stays[positions] = False
    return stays.nonzero().squeeze(1)


def parts_of(layout: Layout, budget: Budget) -> list[CountedPart]:
    """In native order; an image that is one grid is the same under either kind of budget, draws included."""
    return [CountedPart(0, layout)] if budget.per == "image" else tiles_of(layout)


def tiles_of(layout: Layout) -> list[CountedPart]:
    """One part per block of the layout; a single grid is the whole image."""
    if len(layout) == 1:
        return [CountedPart(0, layout)]
    parts: list[CountedPart] = []
    for tile, block in enumerate(layout):
        first = parts[-1].first + parts[-1].n if parts else 0
        parts.append(CountedPart(first, (block,), tile))
    return parts


def together(selections: Sequence[Selection], sizes: Sequence[int]) -> Selection:
    """One selection of an image from those of its parts, which have so many tokens each, in native order.

    Anchors move by the tokens in front of their part. A mix becomes block-diagonal; a class token's column, behind the
    tokens of every part, is the one behind those of the image.
    """
    if len(selections) == 1:
        return selections[0]
    n, firsts = sum(sizes), [sum(sizes[:i]) for i in range(len(sizes))]
    placed = zip(selections, firsts, sizes, strict=True)
    anchors = torch.cat([_moved(each.anchors, first, size, n) for each, first, size in placed])
    merging = next((each for each in selections if each.mix is not None), selections[0])
    mix = None if merging.mix is None else _whole_mix(selections, firsts, sizes)
    return in_native_order(Selection(anchors, mix, merging.merge_at, merging.native_order))


def _moved(anchors: Tensor, first: int, size: int, n: int) -> Tensor:
    """Anchors in a part as those of the image. One beyond its part, which a GPU has not checked yet, is beyond all n:
    it must not pass for a token of the next tile."""
    return torch.where(anchors < 0, anchors, torch.where(anchors < size, anchors + first, n))


def _whole_mix(selections: Sequence[Selection], firsts: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """(K, N), or (K, N + 1) if some part mixes in a class token."""
    mixes = [_mix(each, size) for each, size in zip(selections, sizes, strict=True)]
    n, outputs = sum(sizes), sum(map(len, mixes))
    has_class_token = any(mix.shape[1] > size for mix, size in zip(mixes, sizes, strict=True))
    whole = torch.zeros(outputs, n + has_class_token, dtype=mixes[0].dtype, device=mixes[0].device)
    row = 0
    for mix, first, size in zip(mixes, firsts, sizes, strict=True):
        rows = whole[row : row + len(mix)]
        rows[:, first : first + size] = mix[:, :size]
        if mix.shape[1] > size:
            rows[:, n] = mix[:, size]
        row += len(mix)
    return whole


def _mix(selection: Selection, size: int) -> Tensor:
    """The mix, or that of a deletion: each output is its anchor."""
    if selection.mix is not None:
        return selection.mix
    return one_hot(selection.anchors.clamp(0, size - 1), size).float()


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
            self.places.append(torch.arange(prefix.k) if prefix.places is None else prefix.places)
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
        uncut = prefix.start + (torch.arange(prefix.k) if prefix.places is None else prefix.places)
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
