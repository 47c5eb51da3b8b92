"""The same tokens at other positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sightline.core.selection import PositionPolicy
from sightline.interventions.base import INTERVENTIONS, Intervention


@INTERVENTIONS.register("swap_positions")
@dataclass(frozen=True)
class SwapPositions(Intervention):
    """The same tokens under the other position policy."""

    name: ClassVar[str] = "swap_positions"
    family: ClassVar[str] = "positions"

    def positions(self, usual: PositionPolicy) -> PositionPolicy:
        return "compact" if usual == "preserve" else "preserve"
