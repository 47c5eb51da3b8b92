"""How well shown boxes match annotated ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from sightline.core.probe import Box, Probe


def iou(a: Box, b: Box) -> float:
    """Intersection over union of two boxes; 0 where neither has area."""
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    shared = width * height
    union = area(a) + area(b) - shared
    return shared / union if union > 0.0 else 0.0


def area(box: Box) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def best_ious(regions: Sequence[Box], shown: Sequence[Box]) -> list[float]:
    """Per region the IoU with the shown box that fits it best; 0 when nothing is shown."""
    return [max((iou(region, box) for box in shown), default=0.0) for region in regions]


@dataclass(frozen=True)
class BoxQuality:
    """A box source against the annotation, over the probes that have regions."""

    probes: int
    boxes_per_probe: float
    best_iou: float
    """Mean over probes of the mean best IoU of their regions."""
    missing_rate: float
    """Share of regions that no shown box overlaps at all."""
    empty_rate: float
    """Share of probes that were shown no box whatever."""

    @classmethod
    def of(cls, probes: Iterable[Probe]) -> BoxQuality:
        annotated = [probe for probe in probes if probe.regions]
        if not annotated:
            return cls(0, 0.0, 0.0, 0.0, 0.0)
        best = [best_ious(probe.regions, probe.visible_boxes) for probe in annotated]
        flat = [value for values in best for value in values]
        return cls(
            probes=len(annotated),
            boxes_per_probe=fmean(len(probe.visible_boxes) for probe in annotated),
            best_iou=fmean(fmean(values) for values in best),
            missing_rate=fmean(value <= 0.0 for value in flat),
            empty_rate=fmean(not probe.visible_boxes for probe in annotated),
        )
