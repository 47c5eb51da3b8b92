"""Coverage-greedy: one by one the token that adds most relevance, uniqueness, new ground and box coverage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sightline.core.selection import ByModel, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.scores import Scored, centres, minmax, overlap_area
from sightline.selectors.spreading import Neighbours, local_uniqueness


@SELECTORS.register("coverage_greedy")
@dataclass(frozen=True)
class CoverageGreedy(Scored):
    """Keeps, one by one, the token that adds most relevance, uniqueness, new ground and box coverage together.

    gain_i = minmax(a_i) + 0.2 minmax(u_i) + 0.3 / s^2 if its place on an s x s raster, s = ceil(sqrt K), is still empty
    + boost * the mean over boxes of how much of the box it newly covers (areas added up, capped at the box).
    Parity: exact indices with the paper's artifact, given its ``neighbours``.
    """

    boost: float = 0.5
    neighbours: Neighbours = "blocks"

    name: ClassVar[str] = "coverage_greedy"
    reads_boxes: ClassVar[bool] = True
    artifact: ClassVar[ByModel] = {"*": {"neighbours": "one_raster"}}

    def choose(self, scores: Tensor, view: TokenView, k: int) -> Tensor:
        unlike = local_uniqueness(view, self.neighbours)
        return coverage_greedy(scores, unlike, view.cells, view.boxes, k, self.boost)


def coverage_greedy(
    scores: Tensor, uniqueness: Tensor, cells: Tensor, boxes: Tensor, k: int, boost: float = 0.5
) -> Tensor:
    """(k,) picks from (N,) scores and uniqueness, (N, 4) cells and (M, 4) boxes.

    A pick changes the gain of few tokens: those at the same place of the raster and those that overlap a box.
    """
    side = math.ceil(math.sqrt(k))
    x, y = centres(cells)
    place = ((y * side).long().clamp(0, side - 1) * side + (x * side).long().clamp(0, side - 1)).numpy()
    by_place = np.argsort(place, kind="stable")
    ends = np.searchsorted(place[by_place], np.arange(side * side + 1))

    base = (1.0 * minmax(scores, 1e-12) + 0.2 * minmax(uniqueness, 1e-12)).numpy()
    ground = base + 0.3 / (side * side)
    area = (boxes[:, 2:] - boxes[:, :2]).clamp_min(0.0).prod(dim=-1)
    adds = (overlap_area(cells, boxes) / torch.where(area > 0.0, area, 1.0)[:, None]).numpy()
    touching = np.flatnonzero(adds.any(axis=0))
    covered = np.zeros((len(boxes), 1))

    gain = ground.copy()
    picks = np.empty(k, dtype=np.int64)
    stale = touching
    for step in range(k):
        if stale.size and len(boxes):
            increase = np.minimum(1.0, covered + adds[:, stale]) - covered
            gain[stale] = ground[stale] + boost * (increase.sum(axis=0) / len(boxes))
        pick = picks[step] = gain.argmax()
        here = by_place[ends[place[pick]] : ends[place[pick] + 1]]
        base[pick] = -np.inf
        ground[here] = base[here]
        gain[here] = base[here]
        covered = np.minimum(1.0, covered + adds[:, pick, None])
        stale = touching if adds[:, pick].any() else here
    return torch.from_numpy(picks)
