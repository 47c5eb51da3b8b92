"""Blank images: what the question alone makes the model say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from sightline.core.probe import Probe
from sightline.interventions.base import INTERVENTIONS, Intervention


@INTERVENTIONS.register("blank")
@dataclass(frozen=True)
class Blank(Intervention):
    """Grays the whole image: what the question alone makes the model say."""

    name: ClassVar[str] = "blank"
    family: ClassVar[str] = "blank"
    view: ClassVar[str] = "blank"

    def seen(self, probe: Probe) -> Probe:
        return replace(probe, view=self.view, occlude=((0.0, 0.0, 1.0, 1.0),))
