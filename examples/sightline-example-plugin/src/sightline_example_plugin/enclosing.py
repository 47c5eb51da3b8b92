"""One box around all regions of a probe: what a method sees that knows where to look, but not how precisely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from sightline.boxes.detection import Detected
from sightline.boxes.quality import BoxQuality
from sightline.boxes.sources import BoxSource, Shown
from sightline.core.probe import Box, Probe


class EnclosingBox(BoxSource):
    """Nothing is searched: the box follows from the annotation."""

    def show(self, probes: Sequence[Probe], found: Mapping[str, Detected]) -> Shown:
        shown = tuple(replace(probe, boxes=around(probe.regions)) for probe in probes)
        return Shown(shown, {"rule": "one box around all regions", **asdict(BoxQuality.of(shown))})


def around(regions: Sequence[Box]) -> tuple[Box, ...]:
    """The smallest box that holds all regions; none where there are none."""
    if not regions:
        return ()
    left, top, right, bottom = zip(*regions, strict=True)
    return ((min(left), min(top), max(right), max(bottom)),)


ENCLOSING = EnclosingBox()
