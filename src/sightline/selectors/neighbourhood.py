"""Which tokens count as neighbours when a selector asks how unlike its surroundings a token is."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from sightline.selectors.scores import uniqueness
from sightline.types import TokenView

Neighbours = Literal["blocks", "one_raster", "none"]
"""``blocks``: inside each tile and the thumbnail. ``one_raster``: as if all tiles formed one wide row-major grid, which mixes
distant tokens; published masks of tiled models were made so. ``none``: uniqueness is 0 everywhere."""


def local_uniqueness(view: TokenView, neighbours: Neighbours) -> Tensor:
    """(N,) float64 on the CPU."""
    if neighbours == "none":
        return torch.zeros(view.cells.shape[0], dtype=torch.float64)
    layout = view.layout
    if neighbours == "one_raster":
        layout = ((layout[0][0], view.cells.shape[0] // layout[0][0]),)
    return uniqueness(view.tokens, layout).cpu().double()
