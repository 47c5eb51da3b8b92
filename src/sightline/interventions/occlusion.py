"""Occlusion: the same question about the image with its evidence grayed, and with as much of something else grayed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from sightline.boxes.quality import iou
from sightline.boxes.sources import seeded_random
from sightline.core.probe import ORIGINAL, Box, Probe
from sightline.errors import SightlineError
from sightline.interventions.base import INTERVENTIONS, Intervention

SEED = 29
DRAWS = 200
MAX_IOU = 0.05
EVIDENCE, RANDOM = "evidence_masked", "random_masked"


def random_region(evidence: Box, probe_id: str) -> Box:
    """A box of the same width and height elsewhere: the first of 200 draws with IoU <= 0.05, else the least overlap."""
    width, height = evidence[2] - evidence[0], evidence[3] - evidence[1]
    rng = seeded_random(SEED, probe_id)
    best, least = evidence, float("inf")
    for _ in range(DRAWS):
        x = rng.uniform(0.0, max(0.0, 1.0 - width))
        y = rng.uniform(0.0, max(0.0, 1.0 - height))
        drawn = (x, y, min(1.0, x + width), min(1.0, y + height))
        overlap = iou(evidence, drawn)
        if overlap <= MAX_IOU:
            return drawn
        if overlap < least:
            best, least = drawn, overlap
    return best


def occlusion_views(probe: Probe) -> tuple[Probe, Probe]:
    """The probe about its image with all regions grayed, and with a box like the first region grayed elsewhere."""
    if not probe.regions:
        raise SightlineError(
            f"probe '{probe.id}' has no regions to occlude; leave it out or run without --interventions occlusion"
        )
    elsewhere = (random_region(probe.regions[0], probe.id),)
    facts, drawn = {**probe.extra, "probe_count": 3}, [list(box) for box in elsewhere]
    hidden = {"rice_view": "evidence_masked", "occlusion_kind": "evidence"}
    other = {"rice_view": "mask_regions", "occlusion_kind": "random_same_size"}
    regions = [list(box) for box in probe.regions]
    return (
        replace(probe, view=EVIDENCE, occlude=probe.regions, extra={**facts, **hidden, "mask_regions": regions}),
        replace(
            probe,
            view=RANDOM,
            occlude=elsewhere,
            extra={**facts, **other, "mask_regions": drawn, "random_regions": drawn},
        ),
    )


def with_occlusion(probes: Iterable[Probe]) -> list[Probe]:
    """Every probe followed by its two occluded views; a probe that is itself a view is left alone."""
    found: list[Probe] = []
    for probe in probes:
        found.append(probe)
        if probe.view == ORIGINAL:
            found += occlusion_views(probe)
    return found


def occlusion_probes(probes: Iterable[Probe]) -> list[Probe]:
    """A control set: probes with regions, three views each."""
    usable = [probe for probe in probes if probe.regions and probe.view == ORIGINAL]
    if not usable:
        raise SightlineError("no probe has regions to occlude")
    marked = [replace(p, extra={**p.extra, "probe_count": 3, "occlusion_kind": "original"}) for p in usable]
    return with_occlusion(marked)


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
