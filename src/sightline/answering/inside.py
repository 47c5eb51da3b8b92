"""A method that cuts between language layers: prefixes start full, one batch per number of visual tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import torch

from sightline.answering.arm_pass import ArmPass, Trace, index_mask, layer_counts
from sightline.answering.materialise import materialise
from sightline.answering.select_step import salt
from sightline.backbones.cuts import LayerCuts
from sightline.backbones.tiles import parts_of
from sightline.core.prefix import Encoded, Prefix
from sightline.core.selection import LayerSelector, Selection
from sightline.core.selection_rules import on_behalf_of


@dataclass
class InsidePass(ArmPass):
    """The choice is made while the layers run; whoever cuts has to look at values and waits for the device.

    Separators are text to such a method: all of them stay.
    """

    _cuts: dict[int, tuple[LayerCuts, int]] = field(init=False, default_factory=dict)
    """Of every probe the cutter of its batch, and its place there."""

    @cached_property
    def lengths(self) -> list[int]:
        return [prompt.length(image.slots) for prompt, image in zip(self.prompts, self.encoded, strict=True)]

    @property
    def groups(self) -> list[list[int]]:
        kinds = [(self._sizes(image), image.slots) for image in self.encoded]
        return [[i for i, kind in enumerate(kinds) if kind == each] for each in sorted(set(kinds))]

    def _sizes(self, image: Encoded) -> tuple[int, ...]:
        """Tokens of every part that the budget is counted over."""
        return tuple(part.n for part in parts_of(image.layout, self.arm.budget))

    def batch_tokens(self, limit: int) -> int:
        """In half precision every probe runs alone.

        Rounding depends on the shape of a batch, and there it is coarse enough to change which tokens such a method
        keeps.
        """
        return limit if self.backbone.language.dtype == torch.float32 else 0

    def prefix(self, i: int) -> Prefix:
        image = self.encoded[i]
        selection = Selection(torch.arange(image.n, device=image.tokens.device))
        return materialise(self.backbone, image, self.prompts[i], selection, self.policy)

    def cutter(self, group: Sequence[int], prefixes: Sequence[Prefix]) -> LayerCuts:
        sizes = self._sizes(self.encoded[group[0]])
        schedule = self._schedule(sizes)
        cutter = LayerCuts(
            cast(LayerSelector, self.arm.selector),
            {layer: sum(left) for layer, left in schedule.items()},
            prefixes,
            [self.encoded[i].layout for i in group],
            [salt(self.probes[i], self.arm) for i in group],
            schedule if len(sizes) > 1 else {},
        )
        self._cuts.update({i: (cutter, place) for place, i in enumerate(group)})
        return cutter

    def _schedule(self, sizes: Sequence[int]) -> dict[int, list[int]]:
        """Layer -> how many visual tokens of every part, which have so many each, continue past it."""
        selector, depth = cast(LayerSelector, self.arm.selector), len(self.backbone.language.layers)
        with on_behalf_of(selector.name):
            own = [selector.schedule(n, self.arm.budget.resolve(n), depth) for n in sizes]
        left, schedule = list(sizes), {}
        for layer in sorted({layer for each in own for layer in each}):
            left = [min(n, each.get(layer, n)) for n, each in zip(left, own, strict=True)]
            schedule[layer] = left
        return schedule

    def _counts(self, image: Encoded) -> list[int]:
        schedule = {layer: sum(left) for layer, left in self._schedule(self._sizes(image)).items()}
        return layer_counts(image.n, schedule, len(self.backbone.language.layers))

    def layer_lengths(self, i: int) -> list[int]:
        image = self.encoded[i]
        return [self.lengths[i] - image.n + count for count in self._counts(image)]

    def traces(self) -> list[Trace]:
        traces = []
        for i, (prompt, image) in enumerate(zip(self.prompts, self.encoded, strict=True)):
            cutter, place = self._cuts[i]
            shares = cutter.parts[place].double().amax(dim=0).numpy()
            lineage = shares > 0
            anchors = index_mask(cutter.anchors[place], image.n)
            k, batch = len(cutter.anchors[place]), len(cutter.keys)
            traces.append(
                Trace(
                    anchors=anchors,
                    lineage=lineage,
                    shares=shares if (lineage != anchors).any() else None,
                    k=k,
                    k_layers=self._counts(image),
                    sequence_full=prompt.full_length(image.slots),
                    sequence_pruned=prompt.prompt_length(k + image.slots - image.n),
                    signal_ms=cutter.signal_ms / batch,
                    select_ms=cutter.select_ms / batch,
                    materialise_ms=0.0,
                    inside_ms=(cutter.signal_ms + cutter.select_ms) / batch,
                )
            )
        return traces
