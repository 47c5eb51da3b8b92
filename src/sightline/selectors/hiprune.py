"""HiPrune: anchors from a middle vision layer, their neighbours, and a register of global tokens from a deep one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, Ranges, Selection, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import stack
from sightline.selectors.scores import order, rank


def cross_neighbours(layout: tuple[tuple[int, int], ...], wrap: bool) -> Tensor:
    """(N, 5) each token followed by its left, right, upper and lower neighbour.

    With ``wrap`` neighbours are index arithmetic (-1, +1, -columns, +columns of the first block, clamped to the token
    range), so the left neighbour of a row's first token is the end of the row above. Without it a neighbour outside
    the token's own block is the token itself.
    """
    n = sum(rows * columns for rows, columns in layout)
    own = torch.arange(n)
    if wrap:
        columns = layout[0][1]
        return torch.stack([own, own - 1, own + 1, own - columns, own + columns], dim=1).clamp_(0, n - 1)
    blocks, start = [], 0
    for rows, columns in layout:
        y = torch.arange(rows).repeat_interleave(columns)
        x = torch.arange(columns).repeat(rows)
        shifted = [(y, x), (y, (x - 1).clamp_min(0)), (y, (x + 1).clamp_max(columns - 1))]
        shifted += [((y - 1).clamp_min(0), x), ((y + 1).clamp_max(rows - 1), x)]
        blocks.append(torch.stack([start + v * columns + u for v, u in shifted], dim=1))
        start += rows * columns
    return torch.cat(blocks)


def hiprune_kept(shallow: Tensor, deep: Tensor, neighbours: Tensor, k: int, alpha: float) -> Tensor:
    """shallow, deep (B, N) received attention, neighbours (N, 5) -> (B, k) ascending.

    anchors = round(k * alpha / 5) highest of ``shallow``; they and their neighbours stay; the rest of the budget goes
    to the highest of ``deep`` among the others.
    """
    anchors = rank(shallow)[:, : round(k * alpha / 5)]
    around = neighbours[anchors].flatten(1)
    priority = torch.zeros(shallow.shape, dtype=torch.int8, device=shallow.device)
    priority.scatter_(1, around, 1).scatter_(1, anchors, 2)
    return order(-priority, -deep)[:, :k].sort(dim=1).values


@SELECTORS.register("hiprune")
@dataclass(frozen=True)
class HiPrune(BatchSelector):
    """Keeps object tokens of a middle layer with their four neighbours, then a deep layer's global tokens.

    Reference: "HiPrune: Training-Free Visual Token Pruning via Hierarchical Attention in Vision-Language Models"
    (2025).
    Needs: attention received per token (mean over heads and all queries) in the 9th and in the penultimate vision
    layer.
    Parity: exact-index on the published 24 x 24 grid.
    Acts: deletes before the language model.
    Degenerate inputs: when anchors and neighbours exceed K, anchors stay first, then neighbours by deep attention;
    ties go to the lower index.

    Parameters
    ----------
    alpha: share of the budget spent on anchors and their neighbours.
    wrap: as published, horizontal neighbours wrap to the adjacent row at the image border; False stops at the border
        and, on tiled layouts, at the tile.
    object_layer, deep_layer: indices into the tower's list of attentions.
    """

    alpha: float = 0.1
    wrap: bool = True
    object_layer: int = 8
    deep_layer: int = -2

    name: ClassVar[str] = "hiprune"
    ranges: ClassVar[Ranges] = {"alpha": (0.0, 1.0)}
    parity: ClassVar[Parity] = "exact-index"
    official_ms: ClassVar[float] = 4.4

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({f"vision.received@{self.object_layer}", f"vision.received@{self.deep_layer}"})

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        """Views of one N; only those of one layout share tensors."""
        if len({view.layout for view in views}) > 1:
            return [self.select(view, k) for view in views]
        shallow = stack([view.signals[f"vision.received@{self.object_layer}"] for view in views])
        deep = stack([view.signals[f"vision.received@{self.deep_layer}"] for view in views])
        neighbours = cross_neighbours(views[0].layout, self.wrap).to(deep.device)
        return [Selection(kept) for kept in hiprune_kept(shallow, deep, neighbours, k, self.alpha)]
