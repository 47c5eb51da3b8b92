"""Tokens spread evenly over the image, alone or with the most relevant ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sightline.core.selection import ByModel, Parity, Ranges, Role, Selection, Selector, TokenView
from sightline.device.work import on_device
from sightline.selectors import SELECTORS
from sightline.selectors.scores import TARGET_SCORE_MS, Scored, fill, on_cpu, share
from sightline.selectors.spreading import GridCells, grid


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
