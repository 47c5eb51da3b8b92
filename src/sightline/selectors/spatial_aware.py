"""Spatial-aware: tokens at the boxes, then between them, then spread over the rest of the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import ByModel, Ranges, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.scores import TARGET_SCORE_MS, Scored, box_centres, box_overlaps, share, without
from sightline.selectors.spreading import GridCells, corridor, farthest, grid, ring

Rest = Literal["grid", "farthest"]


@SELECTORS.register("spatial_aware")
@dataclass(frozen=True)
class SpatialAware(Scored):
    """Keeps tokens at the boxes, then between them, then spread over the rest of the image.

    Paper: Spatial-aware. First the centre token of each box and further overlapping tokens up to max(#boxes,
    round(core * K)); then round(context * K) tokens of the corridor between the first two boxes, or around the
    sources when there is no pair. The rest is, with ``grid`` (default), a grid over the tokens that are still free;
    with ``farthest``, one token after the other that is farthest from all kept. Without boxes this is Grid.
    Published rows were made with ``farthest``.
    Parity: exact indices with the paper's artifact for ``rest="farthest"``, ``cells="truncated"``.
    """

    core: float = 0.35
    context: float = 0.25
    rest: Rest = "grid"
    cells: GridCells = "covering"

    name: ClassVar[str] = "spatial_aware"
    ranges: ClassVar[Ranges] = {"core": (0.0, 1.0), "context": (0.0, 1.0)}
    reads_boxes: ClassVar[bool] = True
    artifact: ClassVar[ByModel] = {"*": {"rest": "farthest", "cells": "truncated"}}
    official_ms: ClassVar[float] = TARGET_SCORE_MS + 44.0

    def choose(self, scores: Tensor, view: TokenView, k: int) -> Tensor:
        if view.boxes.shape[0] == 0:
            return grid(view.cells, k, self.cells)
        limit = max(min(k, view.boxes.shape[0]), share(self.core, k))
        chosen = box_centres(view.cells, view.boxes, scores, limit)
        overlapping = box_overlaps(view.cells, view.boxes, scores, limit)
        overlapping = overlapping[~torch.isin(overlapping, chosen)]
        chosen = torch.cat([chosen, overlapping[: limit - chosen.shape[0]]])
        wanted = min(k - chosen.shape[0], share(self.context, k))
        between = corridor(scores, view.cells, view.boxes, chosen, wanted)
        chosen = torch.cat([chosen, between])
        chosen = torch.cat([chosen, ring(scores, view.cells, chosen, wanted - between.shape[0])])
        left = k - chosen.shape[0]
        if self.rest == "farthest" or left == 0:
            return torch.cat([chosen, farthest(view.cells, chosen, left)])
        free = without(torch.arange(scores.shape[0]), chosen)
        return torch.cat([chosen, free[grid(view.cells[free], left, self.cells)]])
