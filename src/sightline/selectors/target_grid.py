from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sightline.core.selection import ByModel, Ranges, TokenView
from sightline.device.transfer import on_device
from sightline.selectors import SELECTORS
from sightline.selectors.grid import GridCells, grid
from sightline.selectors.scored import TARGET_SCORE_MS, Scored, fill, share


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
