"""Pruning between language layers: run some layers on the full prefix, cut, continue on what is left.

All text stays, in order; cache slots stay contiguous while logical positions keep their original values (or are
renumbered under ``compact``), and the mask stays causal. The choice looks at the prompt alone, so the yes and the no
branch share it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.backbones.batches import Batch, Choice, SeenLayer, cut_span, token_places
from sightline.core.prefix import Prefix
from sightline.core.selection import LayerSelector, LayerState, Selection, of_image
from sightline.core.selection_rules import (
    check_selection,
    errors_named,
    in_native_order,
    join_selections,
    output_parts,
    tiles_of,
)
from sightline.device.work import on_device
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
    budget: int = 0
    """K"""
    layers: int = 0
    """Of the language model."""
    selections: Sequence[Selection] = ()
    """Per prefix what was chosen for it before, of a method in two stages; none: all N tokens are there."""
    by_tile: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Layer -> how many tokens of every tile continue past it; empty where a cut chooses among all tokens."""
    anchors: list[Tensor] = field(default_factory=list)
    places: list[Tensor] = field(default_factory=list)
    """Per prefix (n,) where in its span the surviving visual tokens stand."""
    parts: list[Tensor] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    """Layer -> visual tokens of every prefix that did continue past it."""
    signal_ms: float = 0.0
    select_ms: float = 0.0
    vision: Callable[[int, str], Tensor] | None = None
    """A signal of the vision tower, of the prefix at this place, by name."""
    _memories: list[dict[str, Any]] = field(default_factory=list)
    _scouts: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Per prefix, of the method's own token, what the last layer made of it and its products with the keys there."""
    _choices: dict[int, list[_Made]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for b, prefix in enumerate(self.prefixes):
            chosen = self.selections[b] if self.selections else Selection(torch.arange(prefix.k))
            n = sum(rows * columns for rows, columns in self.layouts[b])
            self.anchors.append(chosen.anchors.cpu())
            self.places.append(token_places(prefix))
            mixed = None if chosen.mix is None else output_parts(chosen.mix.cpu().double())[:, :n]
            self.parts.append(torch.eye(n, dtype=torch.bool)[self.anchors[b]] if mixed is None else mixed)
            self._memories.append({})

    def rehearsal(self) -> LayerCuts:
        """What only looks, at every layer; ``self`` remembers what was noted."""
        whole = dict.fromkeys(range(self.layers), len(self.anchors[0]))
        looking = replace(self, schedule=whole, anchors=[], places=[], parts=[], counts={}, _memories=[], _choices={})
        looking._memories = self._memories
        return looking

    @property
    def follows(self) -> bool:
        return type(self.selector).scout is not LayerSelector.scout

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
        tokens, device = [], batch.hidden.device
        for hidden, made in zip(batch.hidden, chosen, strict=True):
            before = hidden[on_device(batch.start + made.before, device)]
            mix = made.mix
            tokens.append(before[on_device(made.anchors, device)] if mix is None else mix.to(before) @ before)
        left, places = (
            on_device(torch.stack(slots), device)
            for slots in ([made.left for made in chosen], [made.places for made in chosen])
        )
        return Choice(torch.stack(tokens), left, places)

    def _choose(self, batch: Batch, layer: int, seen: SeenLayer) -> list[_Made]:
        self._follow(batch, layer, seen)
        k, n, span = self.schedule[layer], len(self.anchors[0]), batch.counts[0]
        if any(count != span for count in batch.counts):
            raise SightlineError("a batch that is cut between layers must have equal numbers of visual tokens")
        made: list[_Made] = []
        if k < n or (n and (self.selector.varies or type(self.selector).look is not LayerSelector.look)):
            for b, prefix in enumerate(self.prefixes):
                selection = self._asked(batch, b, prefix, layer, k, seen)
                made += [] if selection is None else [self._made(b, selection, span)]
        if len({len(each.anchors) for each in made}) > 1:
            raise SightlineError(
                f"{self.selector.name} lets more tokens of one question continue than of another, so questions are "
                "read one by one; use a batch of 1"
            )
        self.counts[layer] = len(self.anchors[0])
        return made

    def _follow(self, batch: Batch, layer: int, seen: SeenLayer) -> None:
        """Takes a token of the method's own through the layer that the prompts have just been through."""
        added = self.selector.scout(layer, batch.hidden)
        if added is None:
            return
        started = self._now(batch)
        for b, prefix in enumerate(self.prefixes):
            token = added if layer == 0 else self._scouts[b][0] + added
            self._scouts[b] = seen.follow(b, prefix.prompt_length - (prefix.k - len(self.anchors[b])), token)
        self.signal_ms += (self._now(batch) - started) * 1e3

    def _asked(self, batch: Batch, b: int, prefix: Prefix, layer: int, k: int, seen: SeenLayer) -> Selection | None:
        """The method's choice for one prefix, in native order; None where all its tokens continue and it only looks."""
        n = len(self.anchors[b])
        length = prefix.prompt_length - (prefix.k - n)
        started = self._now(batch)
        needs = self.selector.needs - of_image(self.selector.needs) if self.selections else self.selector.needs
        signals = {name: self._signal(name, seen, b, length, prefix) for name in needs}
        selecting = self._now(batch)
        state = LayerState(
            layer=layer,
            hidden=batch.hidden[b, :length],
            image=batch.start + self.places[b],
            source=self.anchors[b],
            layout=self.layouts[b],
            signals=signals,
            key=self.keys[b],
            memory=self._memories[b],
            budget=self.budget,
            layers=self.layers,
        )
        with errors_named(self.selector.name):
            asked = k < n or self.selector.varies
            selection = self._chosen(state, min(k, n), prefix) if asked else None
            if selection is None:
                self._looked(state, prefix)
        self.signal_ms += (selecting - started) * 1e3
        self.select_ms += (self._now(batch) - selecting) * 1e3
        if selection is None:
            return None
        least = min(k, len(selection.anchors)) if self.selector.varies else k
        check_selection(selection, n, least, self.selector.name)
        return in_native_order(selection)

    def _made(self, b: int, selection: Selection, span: int) -> _Made:
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
            case "lm.query" | "lm.key" | "lm.value":
                return seen.attends(b, length)[("lm.query", "lm.key", "lm.value").index(name)]
            case "lm.next_query" | "lm.next_key":
                return seen.attends(b, length, following=True)[name == "lm.next_key"]
            case "lm.parts":
                return seen.parts(b, length)
            case "lm.attention" | "lm.next_attention":
                return seen.attention(b, length, following=name == "lm.next_attention")
            case "lm.attention_last" | "lm.next_attention_last":
                return seen.attention(b, length, length - 1, following=name == "lm.next_attention_last")[:, 0]
            case "lm.normed":
                return seen.normed(b, length)
            case "lm.embeds":
                return prefix.embeds[: prefix.prompt_length]
            case "lm.scout" if b in self._scouts:
                return self._scouts[b][1]
            case _ if name.startswith("vision.") and self.vision is not None:
                return self.vision(b, name)
        raise SightlineError(f"selector {self.selector.name} needs {name}, which no language layer provides")

    def _left(self, b: int, anchors: Tensor, span: int) -> Tensor:
        """(k + s,) the slots of a span that a cut leaves: those of the chosen tokens, and every separator."""
        stays = torch.ones(span, dtype=torch.bool)
        stays[self.places[b]] = False
        stays[self.places[b][anchors]] = True
        return stays.nonzero()[:, 0]

    def _tiles(self, state: LayerState, prefix: Prefix) -> list[LayerState]:
        uncut = prefix.start + token_places(prefix)
        return [tile.among(state, uncut) for tile in tiles_of(state.layout)]

    def _looked(self, state: LayerState, prefix: Prefix) -> None:
        for each in self._tiles(state, prefix) if self.by_tile else [state]:
            self.selector.look(each)

    def _chosen(self, state: LayerState, k: int, prefix: Prefix) -> Selection:
        """The method's choice among all that are left, or its choices within every tile put together."""
        if not self.by_tile:
            return self.selector.cut(state, k)
        chosen, sizes = [], []
        for alone, share in zip(self._tiles(state, prefix), self.by_tile[state.layer], strict=True):
            left = len(alone.image)
            selection = self.selector.cut(alone, share) if share < left else Selection(torch.arange(left))
            check_selection(selection, left, min(share, left), self.selector.name)
            ordered = in_native_order(selection)
            chosen.append(replace(ordered, anchors=ordered.anchors.cpu()))
            sizes.append(left)
        return join_selections(chosen, sizes)

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
