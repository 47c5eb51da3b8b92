from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from sightline.core.probe import Probe
from sightline.interventions.base import INTERVENTIONS, Intervention
from sightline.interventions.occluded_views import EVIDENCE, occlusion_views


@INTERVENTIONS.register("occlude_evidence")
@dataclass(frozen=True)
class OccludeEvidence(Intervention):
    """Grays the evidence before the image is encoded; the mask is chosen anew."""

    name: ClassVar[str] = "occlude_evidence"
    family: ClassVar[str] = "occlusion"
    view: ClassVar[str] = EVIDENCE
    needs_regions: ClassVar[bool] = True

    def seen(self, probe: Probe) -> Probe:
        return replace(occlusion_views(probe)[0], extra=probe.extra)
