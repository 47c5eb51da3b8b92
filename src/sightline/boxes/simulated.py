from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from sightline.boxes.detection import Detected
from sightline.boxes.noise import SEED, VARIANTS, simulate
from sightline.boxes.quality import BoxQuality
from sightline.boxes.sources import BOX_SOURCES, BoxSource, Shown
from sightline.core.probe import Probe


@dataclass(frozen=True)
class SimulatedBoxes(BoxSource):
    """The annotated regions, damaged by one variant of the noise model."""

    variant: str

    def show(self, probes: Sequence[Probe], found: Mapping[str, Detected]) -> Shown:
        shown = tuple(replace(probe, boxes=simulate(probe.regions, probe.id, self.variant).boxes) for probe in probes)
        rule = {**asdict(VARIANTS[self.variant]), "seed": SEED}
        return Shown(shown, {"rule": rule, **asdict(BoxQuality.of(shown))})


for _variant in VARIANTS:
    BOX_SOURCES.add(_variant, SimulatedBoxes(_variant))
