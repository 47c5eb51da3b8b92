"""Nuwa, stage 1: anchors spread over 2 x 2 regions absorb similar patches around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from sightline.core.selection import (
    BatchSelector,
    LayerSelector,
    LayerState,
    Parity,
    Ranges,
    Selection,
    TokenView,
    TwoStages,
    build_form,
)
from sightline.selectors import SELECTORS
from sightline.selectors.fastervlm import CLASS_ATTENTION, RECEIVED, token_attention
from sightline.selectors.fastv import attention_score
from sightline.selectors.greedy import stack, unit
from sightline.selectors.scores import half_way, rank, top

MERGED = "vision.hidden@-2"
"""What the mix acts on; the selector itself does not read it."""
REGION_SIDE = 2


class Plane(NamedTuple):
    """Where the N patches lie."""

    place: Tensor
    """(N, 2) float row and column within the patch's own block."""
    block: Tensor
    """(N,) int64"""
    regions: Tensor
    """(R, 4) int64 patches of each 2 x 2 region; N stands for a place outside the block, at odd heights and widths."""
    diagonal: Tensor
    """(N,) float length of its own block's diagonal, odd heights and widths made even, in steps from patch to patch."""


def plane(layout: tuple[tuple[int, int], ...]) -> Plane:
    places, blocks, regions, diagonals, n = [], [], [], [], sum(rows * columns for rows, columns in layout)
    start = 0
    for number, (rows, columns) in enumerate(layout):
        y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        places.append(torch.stack([y.flatten(), x.flatten()], dim=1).float())
        blocks.append(torch.full((rows * columns,), number))
        ids = torch.arange(start, start + rows * columns).view(rows, columns)
        even = torch.nn.functional.pad(ids, (0, columns % REGION_SIDE, 0, rows % REGION_SIDE), value=n)
        tall, wide = even.shape[0] // REGION_SIDE, even.shape[1] // REGION_SIDE
        diagonals.append(torch.full((rows * columns,), math.hypot(even.shape[0] - 1, even.shape[1] - 1)))
        regions.append(even.view(tall, REGION_SIDE, wide, REGION_SIDE).permute(0, 2, 1, 3).reshape(tall * wide, -1))
        start += rows * columns
    return Plane(*map(torch.cat, (places, blocks, regions, diagonals)))


def regional_anchors(importance: Tensor, regions: Tensor, k: int, per_region: int) -> Tensor:
    """importance (B, N), regions (R, 4) -> (B, k) ascending: the best k of every region's ``per_region`` best.

    ``per_region`` grows to the smallest number that offers k candidates.
    """
    n = importance.shape[1]
    sizes = (regions < n).sum(dim=1)  # still on the CPU: nothing is read back from a GPU
    offers = [int(sizes.clamp_max(count).sum()) for count in range(1, regions.shape[1] + 1)]
    per_region = next(count for count, offer in enumerate(offers, start=1) if count >= per_region and offer >= k)
    regions = regions.to(importance.device)
    outside = importance.new_full((importance.shape[0], 1), -torch.inf)
    padded = torch.cat([importance, outside], dim=1)
    best = rank(padded[:, regions])[:, :, :per_region]
    candidates = regions.expand(importance.shape[0], -1, -1).gather(2, best).flatten(1)
    offered = torch.full_like(padded, -torch.inf).scatter_(1, candidates, padded.gather(1, candidates))
    return top(offered[:, :n], k)


def spatial_weights(
    features: Tensor,
    importance: Tensor,
    anchors: Tensor,
    where: Plane,
    reach: float | Tensor,
    percentile: float,
    mean: bool = False,
) -> Tensor:
    """features (B, N, C), importance (B, N), anchors (B, K) -> mix (B, K, N); ``reach`` is one, or (N,) of the anchors.

    w_ui = max(0, cos(f_u, f_i)) * (1 - min(1, |p_u - p_i| / reach)) within a block. Anchors at or above the
    ``percentile`` quantile of the anchors' importance keep only themselves. Rows are divided by their sum; then the
    own weight is set to 1, or as a ``mean`` before that.
    """
    directions = unit(features)
    cosines = torch.stack([d[a] @ d.T for d, a in zip(directions, anchors, strict=True)])
    place, block = where.place.to(anchors.device), where.block.to(anchors.device)
    offset = place[anchors].unsqueeze(2) - place
    within = reach.to(anchors.device)[anchors].unsqueeze(2) if isinstance(reach, Tensor) else reach
    near = 1.0 - (offset.square().sum(dim=3).sqrt() / within).clamp_max(1.0)
    near = near * (block[anchors].unsqueeze(2) == block)
    weights = cosines.clamp_min(0.0) * near
    standing = importance.gather(1, anchors)
    alone = standing >= torch.quantile(standing, percentile, dim=1, keepdim=True)
    weights.masked_fill_(alone.unsqueeze(2), 0.0)
    if mean:
        weights.scatter_(2, anchors.unsqueeze(2), 1.0)
    weights /= weights.sum(dim=2, keepdim=True) + 1e-8
    return weights if mean else weights.scatter_(2, anchors.unsqueeze(2), 1.0)


@SELECTORS.register("nuwa")
@dataclass(frozen=True)
class Nuwa(BatchSelector):
    """Picks the most attended patches evenly over 2 x 2 regions; the weaker ones absorb similar patches around them.

    Reference: "Nüwa: Mending the Spatial Integrity Torn by VLM Token Pruning" (2026), stage 1.
    Needs: mean of vision hidden states 16..24 (similarity), class-token attention of the penultimate layer summed over
    heads (importance); the penultimate hidden states are what is merged.
    Parity: exact-index with K anchors; its second stage is ``nuwa_inside``, both are ``nuwa_both``.
    Acts: merges vision hidden states before the projector.
    Degenerate inputs: zero-norm features have cosine 0 and absorb nothing; odd heights and widths leave smaller
    regions at the border; tiles neither share regions nor absorb one another; ties go to the lower index.

    Parameters
    ----------
    per_region: candidates offered by each 2 x 2 region, raised when K needs more.
    reach: distance in patches beyond which nothing is absorbed.
    percentile: quantile of the anchors' importance from which an anchor stays as it is.
    first_layer, last_layer: range of vision hidden states, both included, whose mean decides similarity.
    """

    per_region: int = 1
    reach: float = math.sqrt(280.0)
    percentile: float = 0.55
    first_layer: int = 16
    last_layer: int = 24

    name: ClassVar[str] = "nuwa"
    parity: ClassVar[Parity] = "exact-index"
    ranges: ClassVar[Ranges] = {"per_region": (1, REGION_SIDE**2), "reach": (1e-12, inf), "percentile": (0.0, 1.0)}
    merges: ClassVar[bool] = True
    merges_vision: ClassVar[bool] = True
    official_ms: ClassVar[float] = 12.0

    @property
    def features(self) -> str:
        return f"vision.hidden_mean@{self.first_layer}:{self.last_layer}"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.features, CLASS_ATTENTION, MERGED})

    def other_form(self, blocks: int) -> Nuwa:
        return build_form(TokenNuwa, self)

    def importance(self, views: Sequence[TokenView]) -> Tensor:
        """(B, N)"""
        return stack([view.signals[CLASS_ATTENTION] for view in views]).float().sum(dim=1)

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        """Views of one N; only those of one layout share tensors."""
        if len({view.layout for view in views}) > 1:
            return [self.select(view, k) for view in views]
        features = stack([view.signals[self.features] for view in views])
        importance, where = self.importance(views), plane(views[0].layout)
        anchors = regional_anchors(importance, where.regions, k, self.per_region)
        reach = self.reach or (0.8 * where.diagonal).clamp_min(1e-12)
        merge_at: Literal["tokens", "vision"] = "vision" if self.merges_vision else "tokens"
        mean = not self.merges_vision
        mixes = spatial_weights(features, importance, anchors, where, reach, self.percentile, mean)
        return [Selection(a, mix, merge_at=merge_at) for a, mix in zip(anchors, mixes, strict=True)]


@dataclass(frozen=True)
class TokenNuwa(Nuwa):
    """Importance is the attention received in the last block, and tokens are merged behind the projector, as means.

    Similarity by what leaves blocks 7..23 (hidden states 8..24); the public code sends their mean through the merger,
    and leaves it in the order of the tower's windows. Here it is the mean of a token's patches, in the image's order.
    ``reach`` 0 is 0.8 of the diagonal of a token's block; three tokens of a region are candidates, and only the lowest
    tenth of anchors absorbs others.
    """

    per_region: int = 3
    reach: float = 0.0
    percentile: float = 0.1
    first_layer: int = 8

    form: ClassVar[str] = (
        "received attention, and tokens merged behind the projector, as the public code for Qwen2.5-VL"
    )
    ranges: ClassVar[Ranges] = {"reach": (0.0, inf)}
    merges_vision: ClassVar[bool] = False

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.features, RECEIVED})

    def importance(self, views: Sequence[TokenView]) -> Tensor:
        return token_attention(views, RECEIVED)


# Its second stage, inside the language model.


@SELECTORS.register("nuwa_inside")
@dataclass(frozen=True)
class NuwaInside(LayerSelector):
    """What the question has gathered from the image half-way decides which visual tokens go on.

    Reference: "Nüwa: Mending the Spatial Integrity Torn by VLM Token Pruning" (2026), stage 2; stage 1, in the vision
    tower, is ``nuwa``.

    Score: head mean of the last prompt token's attention in the layer that just ran (``lm.attention_last``). Deletion,
    one cut, highest scores, ties to the lower index.
    Schedule: K tokens continue once half of the layers have run, 16 of 32 as published; in a shallow model the cut
    moves up to the last layer but one.
    Parity: exact-index for the choice, positions kept as in the public code. All N tokens are there; behind the first
    stage it is ``nuwa_both``.
    Degenerate input: equal scores keep the first tokens.
    """

    name: ClassVar[str] = "nuwa_inside"
    parity: ClassVar[Parity] = "exact-index"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.attention_last"})
    ranges: ClassVar[Ranges] = {"depth": (0.0, 1.0)}

    depth: float = 0.5
    """Part of the layers that see every token."""

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {half_way(layers, self.depth): k}

    def cut(self, state: LayerState, k: int) -> Selection:
        return Selection(anchors=top(attention_score(state.signals["lm.attention_last"], state.image), k))


@SELECTORS.register("nuwa_both")
@dataclass(frozen=True)
class NuwaBoth(TwoStages, Nuwa, NuwaInside):
    """Anchors with their surroundings reach the language model; half-way, what the question looks at goes on.

    Reference: "Nüwa: Mending the Spatial Integrity Torn by VLM Token Pruning" (2026).

    Stages: ``nuwa``, then ``nuwa_inside`` on what it leaves, with the arguments of both.
    Budget: K is the mean over the language layers. Published are 112, 224 and 336 tokens that reach the model
    and 16, 32 and 48 behind layer 16, for means of 64, 128 and 192: 7/4 K, a seventh of it left.
    Costs: what both stages read, the first once per image, the second between layers.
    Parity: exact-index, as far as each stage has it. Candidates per region
    grow with what the first stage needs.
    """

    name: ClassVar[str] = "nuwa_both"
    parity: ClassVar[Parity] = "exact-index"
    ranges: ClassVar[Ranges] = {"share": (0.0, 1.0)}

    share: float = 1 / 7

    def other_form(self, blocks: int) -> Nuwa:
        return build_form(TokenNuwaBoth, self)


@dataclass(frozen=True)
class TokenNuwaBoth(TwoStages, TokenNuwa, NuwaInside):
    """Both stages, the first as ``TokenNuwa``."""

    name: ClassVar[str] = "nuwa_both"
    parity: ClassVar[Parity] = "exact-index"
    ranges: ClassVar[Ranges] = {"share": (0.0, 1.0)}

    share: float = 1 / 7
