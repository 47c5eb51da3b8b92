"""The span of an image: the slots that stand for it in the sequence, not all of which come from somewhere in it.

Many architectures put line ends, tile markers or text between the tokens of an image. They have no source, so selectors
do not see them and budgets do not count them; what becomes of them under pruning is decided here, for all methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from sightline.core.selection import PositionPolicy
from sightline.device.work import on_device


@dataclass(frozen=True)
class Separators:
    """S slots without a source among the M = N + S of a span.

    Each belongs to a stretch of tokens, a row or a tile, and stays for as long as one of these tokens does.
    """

    embeds: Tensor
    """(S, D) what the language model reads there."""
    slots: Tensor
    """(S,) int64 on the host, ascending: places among the M."""
    owners: Tensor
    """(S, 2) int64 on the host: the first token of the stretch that it belongs to, and the one behind its last."""
    deepstack: tuple[Tensor, ...] = ()
    """Per DeepStack level (S, D)."""
    ids: Tensor | None = None
    """(S,) int64 on the host: what the processor writes there; None where no processor was asked."""

    def token_slots(self, n: int) -> Tensor:
        """(N,) int64: places of the tokens among the M."""
        free = torch.ones(n + len(self.slots), dtype=torch.bool)
        free[self.slots] = False
        return free.nonzero()[:, 0]

    def kept_separators(self, anchors: Tensor, n: int) -> Tensor:
        """(S',) int64: separators that stay when the tokens (K,) do. One without a source, -1, is in no row."""
        kept = torch.zeros(n + 1, dtype=torch.long)
        kept[anchors[anchors >= 0] + 1] = 1
        upto = kept.cumsum(0)
        return (upto[self.owners[:, 1]] > upto[self.owners[:, 0]]).nonzero()[:, 0]


@dataclass(frozen=True)
class KeptSpan:
    """What is left of a span with separators: its slots in native order, all on the host."""

    slots: Tensor
    """(K + S',) int64 places among the M; -1 for an output that has no source."""
    order: Tensor
    """(K + S',) int64 into the K tokens followed by the S separators."""
    places: Tensor
    """(K,) int64 where each of the K tokens, in their order, stands in the kept span."""

    @staticmethod
    def of(separators: Separators, anchors: Tensor, n: int) -> KeptSpan:
        """For (K,) anchors on the host."""
        k, staying = len(anchors), separators.kept_separators(anchors, n)
        own = separators.token_slots(n)[anchors.clamp(min=0)]
        slots = torch.cat([torch.where(anchors >= 0, own, -1), separators.slots[staying]])
        sources = torch.cat([torch.arange(k), k + staying])
        order = torch.argsort(slots, stable=True)
        places = torch.empty_like(order)
        places[order] = torch.arange(len(order))
        return KeptSpan(slots[order], sources[order], places[:k])

    def filled(
        self, tokens: Tensor, deepstack: tuple[Tensor, ...], separators: Separators
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(K, D) tokens and DeepStack levels with the separators that stay between them, (K + S', D)."""
        order = on_device(self.order, tokens.device)
        levels = zip(deepstack, separators.deepstack, strict=True)
        return (
            torch.cat([tokens, separators.embeds.to(tokens.dtype)])[order],
            tuple(torch.cat([level, between])[order] for level, between in levels),
        )


# Logical positions of a span's slots under both policies, whatever the number of axes.


@dataclass(frozen=True)
class SlotPositions:
    """What the model itself numbers the M slots of an unpruned span by, counted from its first slot."""

    ids: Tensor
    """(A, M) int64 on the host; one axis, or three for multimodal rotary embeddings."""
    following: int
    """Of the text behind the span."""

    @staticmethod
    def sequential(slots: int) -> SlotPositions:
        return SlotPositions(torch.arange(slots)[None], slots)

    def kept(self, slots: Tensor, start: int, policy: PositionPolicy) -> tuple[Tensor, int | Tensor]:
        """(A, K) ids of the kept slots (K,), where those are, behind ``start`` tokens; and the id of the text behind.

        ``preserve`` keeps the model's own ids. ``compact`` closes, on each axis, the gaps that pruning left: an id
        moves down by the extent of all ids below it that nobody has any more. One without a slot, -1, takes the first.
        """
        within = slots.clamp(min=0)
        if policy == "preserve":
            return on_device(self.ids, slots.device)[:, within] + start, self.following + start
        moved, ends = [], []
        for rank, values in zip(self._ranks, self._values, strict=True):
            gaps = on_device(torch.diff(values, append=values[-1:] + 1), slots.device)
            own = on_device(rank, slots.device)[within]
            extent = gaps * torch.zeros_like(gaps).index_fill_(0, own, 1)
            upto = extent.cumsum(0)
            moved.append((upto - extent)[own] + int(values[0]))
            ends.append(upto[-1] + int(values[0]))
        behind = self.following - int(self.ids.max()) - 1
        return torch.stack(moved) + start, torch.stack(ends).max() + behind + start

    @cached_property
    def _values(self) -> list[Tensor]:
        """Per axis its distinct ids, ascending."""
        return [torch.unique(axis) for axis in self.ids]

    @cached_property
    def _ranks(self) -> list[Tensor]:
        """Per axis (M,) where each slot's id stands among the distinct ones."""
        axes = zip(self._values, self.ids.contiguous(), strict=True)
        return [torch.searchsorted(values, axis) for values, axis in axes]
