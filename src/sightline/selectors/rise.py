"""Rise: relevant and locally unique tokens, then those that are also far from what is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sightline.core.selection import ByModel, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.scores import Scored, centres, rank
from sightline.selectors.spreading import Neighbours, approach, local_uniqueness, nearest


@SELECTORS.register("rise")
@dataclass(frozen=True)
class Rise(Scored):
    """Keeps relevant and locally unique tokens, then those that are also far from what is kept.

    base = a + 0.6 u with u the uniqueness of a token among its neighbours. Among the 3K best by base, the first
    round(0.7 K) are taken; then greedily the largest base + 0.4 d, d the distance to the nearest kept centre.
    Parity: exact indices with the paper's artifact, given its ``neighbours``.
    """

    neighbours: Neighbours = "blocks"

    name: ClassVar[str] = "rise"
    artifact: ClassVar[ByModel] = {"*": {"neighbours": "one_raster"}}

    @property
    def reads_boxes(self) -> bool:
        return super().reads_boxes or self.neighbours == "evidence"

    def choose(self, scores: Tensor, view: TokenView, k: int) -> Tensor:
        return rise(scores, local_uniqueness(view, self.neighbours), view.cells, k)


def rise(scores: Tensor, uniqueness: Tensor, cells: Tensor, k: int) -> Tensor:
    """(k,) picks from (N,) scores and uniqueness and (N, 4) cells."""
    base = scores + 0.6 * uniqueness
    shortlist = rank(base)[: 3 * k].sort().values  # ascending, so that the first of equals is the lower index
    base, cells = base[shortlist], cells[shortlist]
    first = rank(base)[: max(1, round(0.7 * k))]
    x, y = (part.numpy() for part in centres(cells))
    gap = nearest(cells, cells[first]).numpy()
    open_base = base.numpy()
    open_base[first] = -np.inf
    later = np.empty(k - len(first), dtype=np.int64)
    for step in range(len(later)):
        pick = later[step] = (open_base + 0.4 * np.sqrt(gap)).argmax()
        approach(gap, x, y, pick)
        open_base[pick] = -np.inf
    return shortlist[torch.cat([first, torch.from_numpy(later)])]
