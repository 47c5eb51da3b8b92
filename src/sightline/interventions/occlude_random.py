from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from sightline.core.probe import Probe
from sightline.interventions.base import INTERVENTIONS, Intervention
from sightline.interventions.occluded_views import RANDOM, occlusion_views


@INTERVENTIONS.register("occlude_random")
@dataclass(frozen=True)
class OccludeRandom(Intervention):
    """Grays a box of the evidence's size elsewhere: what graying costs when it hides nothing."""

    name: ClassVar[str] = "occlude_random"
    family: ClassVar[str] = "occlusion"
    view: ClassVar[str] = RANDOM
    needs_regions: ClassVar[bool] = True

    def seen(self, probe: Probe) -> Probe:
        return replace(occlusion_views(probe)[1], extra=probe.extra)
