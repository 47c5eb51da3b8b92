"""Four mixtures of relevance, context and spread: a core, then tokens around or between, then farthest points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import Ranges, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.scores import Scored, box_overlaps, rank, share
from sightline.selectors.spreading import corridor, farthest, ring

BOOST = 0.15
"""Share of the context that ``soft_relboost`` gives to the corridor."""


@SELECTORS.register("hybrid")
@dataclass(frozen=True)
class Hybrid(Scored):
    """Keeps the most relevant tokens, their surroundings, and a spread over the rest of the image.

    round(core * K) tokens by score (at least one), round(context * K) around them, the rest by farthest-point sampling.
    Parity: exact indices with the paper's artifact.
    """

    core: float = 0.5
    context: float = 0.25

    name: ClassVar[str] = "hybrid"
    ranges: ClassVar[Ranges] = {"core": (0.0, 1.0), "context": (0.0, 1.0)}

    def choose(self, scores: Tensor, view: TokenView, k: int) -> Tensor:
        chosen = self.first(scores, view, share(self.core, k, least=1))
        wanted = min(k - chosen.shape[0], share(self.context, k))
        chosen = torch.cat([chosen, self.second(scores, view, chosen, wanted)])
        return torch.cat([chosen, farthest(view.cells, chosen, k - chosen.shape[0])])

    def first(self, scores: Tensor, view: TokenView, count: int) -> Tensor:
        return rank(scores)[:count]

    def second(self, scores: Tensor, view: TokenView, chosen: Tensor, count: int) -> Tensor:
        return ring(scores, view.cells, chosen, count)


@SELECTORS.register("rel_hybrid")
@dataclass(frozen=True)
class RelHybrid(Hybrid):
    """Hybrid whose context lies between the first two boxes.

    With fewer than two boxes the context is Hybrid's. Parity: exact indices with the paper's artifact.
    """

    name: ClassVar[str] = "rel_hybrid"
    reads_boxes: ClassVar[bool] = True

    def second(self, scores: Tensor, view: TokenView, chosen: Tensor, count: int) -> Tensor:
        between = corridor(scores, view.cells, view.boxes, chosen, count)
        around = ring(scores, view.cells, torch.cat([chosen, between]), count - between.shape[0])
        return torch.cat([between, around])


@SELECTORS.register("protected_rel_hybrid")
@dataclass(frozen=True)
class ProtectedRelHybrid(RelHybrid):
    """Rel-hybrid whose core is taken from the boxes in turn, as Protected does.

    Without overlapping tokens the core goes by score. Parity: exact indices with the paper's artifact.
    """

    name: ClassVar[str] = "protected_rel_hybrid"
    reads_boxes: ClassVar[bool] = True

    def first(self, scores: Tensor, view: TokenView, count: int) -> Tensor:
        reserved = box_overlaps(view.cells, view.boxes, scores, count)
        return reserved if reserved.shape[0] > 0 else rank(scores)[:count]


@SELECTORS.register("soft_relboost")
@dataclass(frozen=True)
class SoftRelboost(Hybrid):
    """Hybrid that gives the last 15 % of its context to tokens between the first two boxes.

    Parity: exact indices with the paper's artifact.
    """

    name: ClassVar[str] = "soft_relboost"
    reads_boxes: ClassVar[bool] = True

    def second(self, scores: Tensor, view: TokenView, chosen: Tensor, count: int) -> Tensor:
        around = ring(scores, view.cells, chosen, count)
        boosted = min(count, max(1, round(BOOST * count)))
        around_kept = around[: count - boosted]
        between = corridor(scores, view.cells, view.boxes, torch.cat([chosen, around_kept]), boosted)
        return torch.cat([around_kept, between]) if between.shape[0] else around
