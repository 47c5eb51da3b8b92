"""Pruning between language layers: run some layers on the full prefix, cut, continue on what is left.

All text stays, in order; cache slots stay contiguous while logical positions keep their original values (or are
renumbered under ``compact``), and the mask stays causal. The choice looks at the prompt alone, so the yes and the no
branch share it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from sightline.backbones.batches import Batch, Choice, SeenLayer, cut_span, token_places
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


class _Made(NamedTuple):
    """One prefix's choice at one layer; indices are of the span as it was before the cut."""

    before: Tensor
    """(n,) where the tokens stood."""
    anchors: Tensor
    mix: Tensor | None
    left: Tensor
    places: Tensor


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
    _choices: dict[int, list[_Made]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for prefix in self.prefixes:
            self.anchors.append(torch.arange(prefix.k))
            self.places.append(token_places(prefix))
            self.parts.append(torch.eye(prefix.k, dtype=torch.bool))

    def wants(self, layer: int) -> bool:
        return layer in self.schedule

    def cut(self, batch: Batch, layer: int, seen: SeenLayer) -> Batch:
        choice = self.choose(batch, layer, seen)
        return batch if choice is None else shortened(batch, choice, layer)

    def choose(self, batch: Batch, layer: int, seen: SeenLayer) -> Choice | None:
        """Of every prefix, a row of the batch each, what goes on past a layer; None where all of it does.

        Asked about a layer again, as where a prompt is read once more with an answer behind it, it says the same.
        """
        if layer not in self._choices:
            self._choices[layer] = self._choose(batch, layer, seen)
        chosen = self._choices[layer]
        if layer == max(self.schedule):  # results may wait long to be read, and nothing looks at prefixes any more
            self.prefixes = ()
        if not chosen:
            return None
        tokens = []
        for hidden, made in zip(batch.hidden, chosen, strict=True):
            before = hidden[batch.start + made.before.to(hidden.device)]
            mix = made.mix
            tokens.append(before[made.anchors.to(hidden.device)] if mix is None else mix.to(before) @ before)
        left = torch.stack([made.left for made in chosen]).to(batch.hidden.device)
        places = torch.stack([made.places for made in chosen]).to(batch.hidden.device)
        return Choice(torch.stack(tokens), left, places)

    def _choose(self, batch: Batch, layer: int, seen: SeenLayer) -> list[_Made]:
        k = self.schedule[layer]
        n, span = len(self.anchors[0]), batch.counts[0]
        if any(count != span for count in batch.counts):
            raise SightlineError("a batch that is cut between layers must have equal numbers of visual tokens")
        if k >= n:
            return []
        return [self._made(batch, b, prefix, layer, k, seen) for b, prefix in enumerate(self.prefixes)]

    def _made(self, batch: Batch, b: int, prefix: Prefix, layer: int, k: int, seen: SeenLayer) -> _Made:
        n, span = len(self.anchors[b]), batch.counts[0]
        length = prefix.prompt_length - (prefix.k - n)
        started = self._now(batch)
        signals = {name: self._signal(name, seen, b, length, prefix) for name in self.selector.needs}
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
        anchors, before = selection.anchors.cpu(), self.places[b]
        if selection.mix is None:
            self.parts[b] = self.parts[b][anchors]
        else:
            self.parts[b] = output_parts(selection.mix.cpu().double()) @ self.parts[b].double()
        left = self._left(b, anchors, span)
        self.anchors[b] = self.anchors[b][anchors]
        self.places[b] = torch.searchsorted(left, before[anchors])
        return _Made(before, anchors, selection.mix, left, self.places[b])

    def _signal(self, name: str, seen: SeenLayer, b: int, length: int, prefix: Prefix) -> Tensor:
        """A signal of ``LANGUAGE_KINDS`` for a prompt's L slots."""
        match name:
            case "lm.input":
                return seen.input(b, length)
            case "lm.rotary":
                return seen.rotary(b, length)
            case "lm.bare_query" | "lm.bare_key":
                return seen.attends(b, length, bare=True)[name == "lm.bare_key"]
            case "lm.key" | "lm.value":
                return seen.attends(b, length)[1 if name == "lm.key" else 2]
            case "lm.attention":
                return seen.attention(b, length)
            case "lm.attention_last" | "lm.next_attention_last":
                return seen.attention(b, length, length - 1, following=name == "lm.next_attention_last")[:, 0]
            case "lm.normed":
                return seen.normed(b, length)
            case "lm.embeds":
                return prefix.embeds[: prefix.prompt_length]
        raise SightlineError(f"selector {self.selector.name} needs {name}, which no language layer provides")

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


def shortened(batch: Batch, choice: Choice, layer: int) -> Batch:
    """The batch with every span cut to the slots that are left, the chosen tokens at their new places."""
    tokens, left = choice.tokens, choice.left
    start, end = batch.start, batch.start + batch.counts[0]
    hidden = cut_span(batch.hidden, left, start, end)
    hidden = hidden.scatter(1, (start + choice.places)[:, :, None].expand_as(tokens), tokens)
    return Batch(
        hidden,
        cut_span(batch.positions, left, start, end, rows=1, slots=2),
        cut_span(batch.segments, left, start, end),
        tuple(
            cut_span(level, left, 0, level.shape[1]) if level_index > layer else level
            for level_index, level in enumerate(batch.deepstack)
        ),
        start,
        [left.shape[1]] * len(batch.counts),
        batch.branches,
        *(None if each is None else cut_span(each, left, start, end) for each in (batch.ids, batch.embeds)),
    )
