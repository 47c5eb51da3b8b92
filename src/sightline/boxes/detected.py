from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from sightline.boxes.detection import Detected, detect
from sightline.boxes.detectors import DETECTORS, detector_named
from sightline.boxes.quality import BoxQuality
from sightline.boxes.sources import BOX_SOURCES, BoxSource, Shown
from sightline.core.probe import Probe
from sightline.places import Place


@dataclass(frozen=True)
class DetectedBoxes(BoxSource):
    """What a text detector finds on each image, the same for all its probes."""

    detector: str
    """Its name, with an option behind a colon where it takes one."""
    searches: ClassVar[bool] = True

    @property
    def rule(self) -> str:
        return detector_named(self.detector).rule

    def check(self) -> None:
        detector_named(self.detector).require()

    def search(self, images: Place, names: Iterable[str], tell: Callable[[str, Detected], object]) -> None:
        detect(self.detector, images, names, tell=tell)

    def show(self, probes: Sequence[Probe], found: Mapping[str, Detected]) -> Shown:
        shown = tuple(replace(probe, boxes=found[probe.image].boxes) for probe in probes)
        ms = {name: result.ms for name, result in found.items()}
        kind = detector_named(self.detector)
        facts = {
            "rule": kind.rule,
            "version": kind.require(),
            **asdict(BoxQuality.of(shown)),
            "boxes_per_image": sum(len(result.boxes) for result in found.values()) / len(found),
            "outside_image": sum(result.outside for result in found.values()),
            "mean_ms": sum(ms.values()) / len(ms),
        }
        return Shown(shown, facts, ms)


def adopt_detectors() -> None:
    """Makes every text detector a box source, also those that were registered since the last time."""
    for name in DETECTORS:
        if name not in BOX_SOURCES:
            BOX_SOURCES.add(name, DetectedBoxes(name))
