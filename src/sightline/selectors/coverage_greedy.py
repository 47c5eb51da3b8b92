from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.selectors import SELECTORS
from sightline.selectors.neighbourhood import Neighbours, local_uniqueness
from sightline.selectors.scored import Scored
from sightline.selectors.scores import centres, minmax, overlap_area
from sightline.types import TokenView


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

    def choose(self, scores: Tensor, view: TokenView, k: int) -> Tensor:
        unlike = local_uniqueness(view, self.neighbours)
        return coverage_greedy(scores, unlike, view.cells, view.boxes, k, self.boost)


def coverage_greedy(
    scores: Tensor, uniqueness: Tensor, cells: Tensor, boxes: Tensor, k: int, boost: float = 0.5
) -> Tensor:
    """(k,) picks from (N,) scores and uniqueness, (N, 4) cells and (M, 4) boxes."""
    side = math.ceil(math.sqrt(k))
    x, y = centres(cells)
    place = (y * side).long().clamp(0, side - 1) * side + (x * side).long().clamp(0, side - 1)
    base = 1.0 * minmax(scores, 1e-12) + 0.2 * minmax(uniqueness, 1e-12)
    area = (boxes[:, 2:] - boxes[:, :2]).clamp_min(0.0).prod(dim=-1)
    adds = overlap_area(cells, boxes) / torch.where(area > 0.0, area, 1.0)[:, None]
    covered = adds.new_zeros(boxes.shape[0], 1)
    fresh = torch.full_like(base, 0.3 / (side * side))
    picks = torch.empty(k, dtype=torch.long)
    for step in range(k):
        gain = base + fresh
        if boxes.shape[0]:
            increase = (covered + adds).clamp_max(1.0) - covered
            gain = gain + boost * (increase.sum(dim=0) / boxes.shape[0])
        pick = int(gain.argmax())
        picks[step] = pick
        base[pick] = -torch.inf
        fresh[place == place[pick]] = 0.0
        covered = (covered + adds[:, pick, None]).clamp_max(1.0)
    return picks
