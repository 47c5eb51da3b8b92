"""Selections around the boxes: oracles that keep or avoid them, and relevance with tokens reserved for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import ByModel, Parity, Ranges, Role, Selection, Selector, TokenView
from sightline.device.work import on_device
from sightline.selectors import SELECTORS
from sightline.selectors.scores import (
    TARGET_SCORE_MS,
    Scored,
    box_centres,
    box_overlaps,
    centre_inside,
    fill,
    minmax,
    on_cpu,
    order,
    overlap_fraction,
    overlap_score,
    rank,
    seeded,
    share,
    top,
)

Padding = Literal["random", "raster"]


@SELECTORS.register("evidence_only")
@dataclass(frozen=True)
class EvidenceOnly(Selector):
    """Keeps the tokens that overlap the boxes, padded to the budget with tokens that do not.

    Paper: Evidence only, an oracle intervention. More overlapping tokens than K: those with the largest summed
    overlap fraction. Fewer: ``random`` padding (default) draws the others uniformly; ``raster`` takes the first in
    raster order, i.e. the top rows of the image, and ranks by the centre prior when nothing overlaps. Published
    rows were made with ``raster``.
    Parity: exact indices with the paper's artifact for ``raster``.
    """

    padding: Padding = "random"
    seed: int = 17

    name: ClassVar[str] = "evidence_only"
    parity: ClassVar[Parity] = "exact-index"
    role: ClassVar[Role] = "oracle"
    reads_boxes: ClassVar[bool] = True
    artifact: ClassVar[ByModel] = {"*": {"padding": "raster"}}

    def select(self, view: TokenView, k: int) -> Selection:
        view = on_cpu(view)
        scores = overlap_score(view.cells, view.boxes)
        if self.padding == "raster":
            return Selection(top(scores, k))
        evidence = overlaps_any(view)
        ranked = rank(scores)
        kept = ranked[evidence[ranked]][:k]
        others = torch.nonzero(~evidence).squeeze(-1)
        drawn = seeded(self.seed, view.key).sample(others.tolist(), k - kept.shape[0])
        return Selection(torch.cat([kept, torch.tensor(drawn, dtype=torch.long)]).sort().values)


def overlaps_any(view: TokenView) -> Tensor:
    """(N,) whether a cell shares area with at least one selector-visible box."""
    return (overlap_fraction(view.cells, view.boxes) > 0.0).any(dim=0)


@SELECTORS.register("anti_evidence")
@dataclass(frozen=True)
class AntiEvidence(Selector):
    """Keeps only tokens that do not overlap the boxes, as long as there are enough of them.

    Paper: Anti-evidence, an oracle intervention. ``random`` padding (default) draws the K tokens uniformly from
    those without overlap; ``raster`` takes the first of them in raster order, i.e. the top rows of the image, and
    those farthest from the centre when nothing overlaps. When fewer than K are free of overlap, the least
    overlapping complete them.
    Parity: exact indices with the paper's artifact for ``raster``, which its published rows were made with.
    """

    padding: Padding = "random"
    seed: int = 17

    name: ClassVar[str] = "anti_evidence"
    parity: ClassVar[Parity] = "exact-index"
    role: ClassVar[Role] = "oracle"
    reads_boxes: ClassVar[bool] = True
    artifact: ClassVar[ByModel] = {"*": {"padding": "raster"}}

    def select(self, view: TokenView, k: int) -> Selection:
        view = on_cpu(view)
        ranked = order(overlap_score(view.cells, view.boxes))
        others = torch.nonzero(~overlaps_any(view)).squeeze(-1)
        if self.padding == "raster" or others.shape[0] <= k:
            return Selection(ranked[:k].sort().values)
        drawn = seeded(self.seed, view.key).sample(others.tolist(), k)
        return Selection(torch.tensor(sorted(drawn), dtype=torch.long))


@SELECTORS.register("soft_evidence")
@dataclass(frozen=True)
class SoftEvidence(Scored):
    """Adds a small bonus to tokens in the boxes before keeping the most relevant.

    Paper: Soft evidence. The K largest minmax(a_i) + beta h_i, h_i the larger of the cell's greatest overlap
    fraction with a box and 1 if its centre lies in one (borders included). Without boxes, or with beta = 0, this is
    Target.
    Parity: exact indices with the paper's artifact (whose default is beta = 0.10; the paper uses 0.05).
    """

    beta: float = 0.05

    name: ClassVar[str] = "soft_evidence"
    rule_on_device: ClassVar[bool] = True
    reads_boxes: ClassVar[bool] = True
    official_ms: ClassVar[float] = TARGET_SCORE_MS + 2.1

    def choose(self, scores: Tensor, view: TokenView, k: int) -> Tensor:
        if view.boxes.shape[0] == 0 or self.beta == 0.0:
            return rank(scores)[:k]
        hit = torch.maximum(overlap_fraction(view.cells, view.boxes), centre_inside(view.cells, view.boxes).double())
        bonus = on_device(self.beta * hit.amax(dim=0), scores.device)
        return rank(minmax(scores, 1e-12) + bonus)[:k]


@SELECTORS.register("protected")
@dataclass(frozen=True)
class Protected(Scored):
    """Reserves part of the budget for tokens that overlap the boxes, then keeps the most relevant.

    Paper: Protected. At most round(reserve * K) tokens (at least one) are taken from the boxes in turn, each box
    offering its tokens by overlap fraction, then score; the rest of the budget goes by score. Without boxes this is
    Target.
    Parity: exact indices with the paper's artifact.
    """

    reserve: float = 0.5

    name: ClassVar[str] = "protected"
    ranges: ClassVar[Ranges] = {"reserve": (0.0, 1.0)}
    reads_boxes: ClassVar[bool] = True
    artifact: ClassVar[ByModel] = {"llava": {"score": "prompt"}}
    official_ms: ClassVar[float] = TARGET_SCORE_MS + 2.8

    def choose(self, scores: Tensor, view: TokenView, k: int) -> Tensor:
        limit = share(self.reserve, k, least=1)
        return fill(box_overlaps(view.cells, view.boxes, scores, limit), scores, k)


@SELECTORS.register("center_protected")
@dataclass(frozen=True)
class CenterProtected(Scored):
    """Reserves one token per box, the one nearest to its centre, then keeps the most relevant.

    Paper: Center-protected. Boxes are served in order, the first K if there are more; without boxes this is Target.
    Parity: exact indices with the paper's artifact.
    """

    name: ClassVar[str] = "center_protected"
    reads_boxes: ClassVar[bool] = True
    official_ms: ClassVar[float] = TARGET_SCORE_MS + 2.8

    def choose(self, scores: Tensor, view: TokenView, k: int) -> Tensor:
        return fill(box_centres(view.cells, view.boxes, scores, k), scores, k)
