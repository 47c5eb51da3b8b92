"""``gray_frame``: does the answer depend on the edge of the image, where the evidence rarely is?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from sightline.core.probe import Probe
from sightline.interventions import Intervention

WIDTH = 0.1


@dataclass(frozen=True)
class GrayFrame(Intervention):
    """Grays a tenth of the image along each edge before it is encoded; the mask is chosen anew."""

    name: ClassVar[str] = "gray_frame"
    family: ClassVar[str] = "frame"
    view: ClassVar[str] = "gray_frame"

    def seen(self, probe: Probe) -> Probe:
        near, far = WIDTH, 1.0 - WIDTH
        edges = ((0.0, 0.0, 1.0, near), (0.0, far, 1.0, 1.0), (0.0, near, near, far), (far, near, 1.0, far))
        return replace(probe, view=self.view, occlude=edges)
