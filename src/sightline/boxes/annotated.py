from __future__ import annotations

from collections.abc import Mapping, Sequence

from sightline.boxes.detection import Detected
from sightline.boxes.sources import ANNOTATION, BOX_SOURCES, BoxSource, Shown
from sightline.core.probe import Probe


class AnnotatedBoxes(BoxSource):
    """The boxes that the probe file carries, or else the annotated regions themselves; of open questions none.

    The regions of an open question are where its answer stands. ``gt`` shows them, as the oracle that it is.
    """

    def show(self, probes: Sequence[Probe], found: Mapping[str, Detected]) -> Shown:
        return Shown(tuple(probes))


BOX_SOURCES.add(ANNOTATION, AnnotatedBoxes())
