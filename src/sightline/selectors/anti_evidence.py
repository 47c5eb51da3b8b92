from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from sightline.core.selection import ByModel, Parity, Role, Selection, Selector, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.evidence_only import Padding, overlaps_any
from sightline.selectors.scored import on_cpu, seeded
from sightline.selectors.scores import order, overlap_score


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
