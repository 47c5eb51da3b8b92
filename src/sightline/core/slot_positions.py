"""Logical positions of a span's slots under both policies, whatever the number of axes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from sightline.core.prefix import PositionPolicy
from sightline.device.transfer import on_device


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
