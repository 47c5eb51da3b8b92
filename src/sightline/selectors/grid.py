"""Tokens spread evenly over the image, alone or with the most relevant ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import ByModel, Parity, Ranges, Role, Selection, Selector, TokenView
from sightline.device.work import on_device
from sightline.selectors import SELECTORS
from sightline.selectors.scores import TARGET_SCORE_MS, Scored, centres, fill, on_cpu, order, share, without

GridCells = Literal["covering", "truncated"]


def grid(cells: Tensor, k: int, tiling: GridCells = "covering") -> Tensor:
    """(k,) distinct tokens spread over the image, from (N, 4) cells, k <= N."""
    if k >= cells.shape[0]:
        return torch.arange(cells.shape[0])
    return _covering(cells, k) if tiling == "covering" else _truncated(cells, k)


def _truncated(cells: Tensor, k: int) -> Tensor:
    """The first k of s x s squares, row by row; missing tokens from the top-left."""
    side = math.ceil(math.sqrt(k))
    x, y = centres(cells)
    column, row = (x * side).long().clamp(0, side - 1), (y * side).long().clamp(0, side - 1)
    across, down = x - (column.double() + 0.5) / side, y - (row.double() + 0.5) / side
    picks = _first_of_each(row * side + column, across * across + down * down)
    square = (row * side + column)[picks]
    picks = picks[square < k]
    return torch.cat([picks, without(order(y, x), picks)[: k - picks.shape[0]]])


def _first_of_each(group: Tensor, distance: Tensor) -> Tensor:
    """For each group that has members, the member with the smallest distance (lower index on ties), by group."""
    ranked = order(group, distance)
    group = group[ranked]
    first = torch.ones_like(group, dtype=torch.bool)
    first[1:] = group[1:] != group[:-1]
    return ranked[first]


def _covering(cells: Tensor, k: int) -> Tensor:
    """k equal-height rows of rectangles that tile everything the tokens see."""
    side = math.ceil(math.sqrt(k))
    starts = torch.div(torch.arange(side + 1) * k, side, rounding_mode="floor")
    corner = cells[:, :2].amin(dim=0)
    extent = cells[:, 2:].amax(dim=0) - corner
    x, y = (torch.stack(centres(cells), dim=-1) - corner).div(torch.where(extent > 0.0, extent, 1.0)).unbind(dim=-1)

    row = (y * side).long().clamp(0, side - 1)
    columns = starts.diff()
    column = torch.minimum((x * columns[row]).long(), columns[row] - 1)
    rectangle_row = torch.repeat_interleave(torch.arange(side), columns)
    centre_x = ((torch.arange(k) - starts[rectangle_row]).double() + 0.5) / columns[rectangle_row]
    centre_y = (rectangle_row.double() + 0.5) / side

    rectangle = starts[row] + column
    across, down = x - centre_x[rectangle], y - centre_y[rectangle]
    picks = _first_of_each(rectangle, across * across + down * down)
    taken = torch.zeros_like(x)
    taken[picks] = torch.inf
    empty = torch.ones(k, dtype=torch.bool)
    empty[rectangle[picks]] = False
    late = []
    for vacant in torch.nonzero(empty).squeeze(-1).tolist():
        across, down = x - centre_x[vacant], y - centre_y[vacant]
        late.append(int((across * across + down * down + taken).argmin()))
        taken[late[-1]] = torch.inf
    return torch.cat([picks, torch.tensor(late, dtype=torch.long)])


@SELECTORS.register("grid")
@dataclass(frozen=True)
class Grid(Selector):
    """Keeps tokens spread evenly over the image, whatever it shows.

    Paper: Grid. ``covering`` (default): K rectangles tile the image, s = ceil(sqrt K) rows of which row r holds
    floor((r + 1) K / s) - floor(r K / s); each keeps the token nearest to its centre, first among its own, then, if
    it has none, among all that are free. ``truncated``: the first K squares of an s x s raster, so the bottom of
    the image is not covered when K < s^2, and missing tokens are taken from the top-left. Published rows were made
    with ``truncated``.
    Parity: exact indices with the paper's artifact for ``truncated``.
    """

    cells: GridCells = "covering"

    name: ClassVar[str] = "grid"
    parity: ClassVar[Parity] = "exact-index"
    role: ClassVar[Role] = "control"
    artifact: ClassVar[ByModel] = {"*": {"cells": "truncated"}}
    official_ms: ClassVar[float] = 1.5

    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(grid(on_cpu(view).cells, k, self.cells).sort().values)


@SELECTORS.register("target_grid")
@dataclass(frozen=True)
class TargetGrid(Scored):
    """Reserves part of the budget for an even spread, then keeps the most relevant.

    Paper: Target+Grid. Grid with round(reserve * K) tokens (at least one), completed by score.
    Parity: exact indices with the paper's artifact for ``cells="truncated"``.
    """

    reserve: float = 0.5
    cells: GridCells = "covering"

    name: ClassVar[str] = "target_grid"
    ranges: ClassVar[Ranges] = {"reserve": (0.0, 1.0)}
    rule_on_device: ClassVar[bool] = True
    artifact: ClassVar[ByModel] = {"*": {"cells": "truncated"}}
    official_ms: ClassVar[float] = TARGET_SCORE_MS + 1.9

    def choose(self, scores: Tensor, view: TokenView, k: int) -> Tensor:
        spread = grid(view.cells, share(self.reserve, k, least=1), self.cells)
        return fill(on_device(spread, scores.device), scores, k)
