from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import ByModel, Parity, Role, Selection, Selector, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.scored import on_cpu, seeded
from sightline.selectors.scores import overlap_fraction, overlap_score, rank, top

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
