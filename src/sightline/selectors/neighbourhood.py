"""How unlike its surroundings a token is, for the selectors that ask for it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from sightline.core.selection import TokenView
from sightline.selectors.scores import overlap_area, uniqueness
from sightline.selectors.spreading import nearest

Neighbours = Literal["blocks", "one_raster", "evidence", "none"]
"""``blocks``: unlike the 4-neighbours inside its tile or the thumbnail. Published masks were made with the other three.
``one_raster``: as if all tiles formed one wide row-major grid, which mixes distant tokens. ``evidence``: distance to
the nearest cell that overlaps a box, at most 1. ``none``: 0 everywhere."""


def local_uniqueness(view: TokenView, neighbours: Neighbours) -> Tensor:
    """(N,) float64 on the CPU, from a view on the CPU."""
    if neighbours == "evidence":
        return evidence_distance(view.cells, view.boxes)
    if neighbours == "none":
        return view.cells.new_zeros(view.cells.shape[0])
    layout = view.layout
    if neighbours == "one_raster":
        layout = ((layout[0][0], view.cells.shape[0] // layout[0][0]),)
    return uniqueness(view.tokens, layout).cpu().double()


def evidence_distance(cells: Tensor, boxes: Tensor) -> Tensor:
    """(N,) distance of each centre to the nearest centre of a cell that overlaps a box, at most 1; 0 without any."""
    source = (overlap_area(cells, boxes) > 0.0).any(dim=0)
    if not bool(source.any()):
        return cells.new_zeros(cells.shape[0])
    squared = nearest(cells, cells[source])
    # Power, not square root: the two differ in the last bit for one value in a thousand, and distances on a regular
    # grid tie so often that published masks show which of them was used.
    return torch.tensor([min(1.0, value**0.5) for value in squared.tolist()], dtype=cells.dtype)
