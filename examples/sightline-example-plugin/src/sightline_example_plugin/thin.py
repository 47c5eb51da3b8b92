"""``thin=2``: is it which tokens are kept, or how many? The same choice, with gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.interventions import Intervention


@dataclass(frozen=True)
class Thin(Intervention):
    """Keeps every second (third, fourth, ...) of the kept tokens; nothing takes the place of the others."""

    every: int

    name: ClassVar[str] = "thin"
    family: ClassVar[str] = "thinning"
    on_mask: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not str(self.every).isdigit() or int(self.every) < 2:
            raise SightlineError(f"'thin={self.every}' needs a whole number from 2 on, for example thin=2")
        object.__setattr__(self, "every", int(self.every))

    @classmethod
    def usual(cls) -> tuple[Intervention, ...]:
        return cls(2), cls(4)

    def kept(self, anchors: Tensor, cells: Tensor, probe: Probe) -> Tensor:
        return anchors[:: self.every]
