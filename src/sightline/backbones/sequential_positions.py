"""Logical positions of architectures that number the sequence on one axis."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.core.prefix import PositionPolicy


def sequential_positions(n: int, anchors: Tensor, start: int, policy: PositionPolicy) -> tuple[Tensor, int]:
    """``preserve``: each kept token keeps the slot of its anchor among the n; ``compact``: 0, 1, 2, ... behind
    ``start``.

    An output without an anchor (-1: a class token) has no slot of its own and takes the first.
    """
    if policy == "compact":
        ids = torch.arange(len(anchors), device=anchors.device)
        return (ids + start)[None], start + len(anchors)
    return (anchors.clamp(min=0) + start)[None], start + n
