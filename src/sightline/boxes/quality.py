"""How well shown boxes match annotated ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from sightline.core.probe import Box, Probe
from sightline.errors import SightlineError


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


# Regions that are a little wrong: does a finding about coverage survive annotations that are moved, resized or lost?
#
# ``noise`` damages what selectors see; here the audit's own yardstick is damaged, and selectors see nothing of it.

AUDIT_SEED = 20_260_717
NOTE = "region_noise"
"""Key of ``Probe.extra`` that says how a probe's regions were damaged."""


@dataclass(frozen=True)
class AuditNoise:
    """Every region is lost with probability ``drop``; else its centre moves by up to ``jitter`` of its sides."""

    jitter: float = 0.0
    drop: float = 0.0
    scale: float = 1.0
    """Of both sides, about the centre."""


AUDIT_VARIANTS = {
    "clean": AuditNoise(),
    "jitter_10pct": AuditNoise(jitter=0.10),
    "jitter_25pct": AuditNoise(jitter=0.25),
    "shrink_20pct": AuditNoise(scale=0.80),
    "expand_20pct": AuditNoise(scale=1.20),
    "drop_20pct": AuditNoise(drop=0.20),
    "drop_40pct": AuditNoise(drop=0.40),
    "mixed_light": AuditNoise(jitter=0.10, drop=0.20),
    "mixed_heavy": AuditNoise(jitter=0.25, drop=0.40),
}
"""The order counts: a variant's generator is seeded by 20260717 plus its place."""


def noisy_regions(
    probes: Sequence[Probe], variant: str, size_of: Callable[[str], tuple[int, int]]
) -> tuple[Probe, ...]:
    """The probes with damaged regions, drawn in file order from one generator; their roles follow.

    Per region one draw decides whether it is lost, and two more, where it is not, how far its centre moves in x and y.
    Coordinates are pixels, rounded to two decimals, as people's annotations are.

    Parameters
    ----------
    size_of: width and height in pixels, by the name of an image, in which regions are annotated.
    """
    if variant not in AUDIT_VARIANTS:
        raise SightlineError(f"unknown noise variant '{variant}'; choose from {', '.join(AUDIT_VARIANTS)}")
    rng = random.Random(AUDIT_SEED + list(AUDIT_VARIANTS).index(variant))
    return tuple(_damaged(probe, variant, size_of(probe.image), rng) if probe.regions else probe for probe in probes)


def _damaged(probe: Probe, variant: str, size: tuple[int, int], rng: random.Random) -> Probe:
    noise = AUDIT_VARIANTS[variant]
    kept: dict[int, Box] = {}
    for place, region in enumerate(probe.regions):
        if rng.random() < noise.drop:
            continue
        moved = _moved(region, noise, size, rng)
        if moved is not None:
            kept[place] = moved
    facts = {"variant": variant, "kept": len(kept), "of": len(probe.regions)}
    roles = tuple(probe.roles[place] for place in kept) if probe.roles else ()
    return replace(probe, regions=tuple(kept.values()), roles=roles, extra={**probe.extra, NOTE: facts})


def _moved(region: Box, noise: AuditNoise, size: tuple[int, int], rng: random.Random) -> Box | None:
    """The region after noise; None where nothing of it is left within the image."""
    sides = []
    for low, high, pixels in ((region[0], region[2], size[0]), (region[1], region[3], size[1])):
        start, extent = round(low * pixels, 2), round((high - low) * pixels, 2)
        centre = start + 0.5 * extent + rng.uniform(-noise.jitter, noise.jitter) * extent
        half = 0.5 * max(1.0, extent * noise.scale)
        first, last = (min(float(pixels), max(0.0, edge)) for edge in (centre - half, centre + half))
        start, extent = round(first, 2), round(last - first, 2)
        sides.append((start / pixels, min(1.0, (start + extent) / pixels)))
    (left, right), (top, bottom) = sides
    return (left, top, right, bottom) if left < right and top < bottom else None


@dataclass(frozen=True)
class AdjustedCoverage:
    """Mean coverage of one task's noisy regions, next to the share of regions that were left to measure it on."""

    probes: int
    with_regions: float
    """Share of probes that have a region left; the others cannot be measured."""
    retention: float
    """Mean over probes of the share of their regions that was left."""
    coverage: float
    """Mean over the probes that can be measured."""

    @property
    def adjusted(self) -> float:
        """A lost region counts as not covered."""
        return self.coverage * self.retention


def adjusted_coverage(probes: Iterable[Probe], coverage: Mapping[str, float]) -> dict[str, AdjustedCoverage]:
    """By task, for probes of ``noisy_regions``; ``coverage`` holds that of each probe with regions, by its id."""
    tasks: dict[str, list[Probe]] = {}
    for probe in probes:
        if NOTE in probe.extra:
            tasks.setdefault(probe.task, []).append(probe)
    found = {}
    for task, noisy in tasks.items():
        measured = [coverage[probe.id] for probe in noisy if probe.regions]
        found[task] = AdjustedCoverage(
            probes=len(noisy),
            with_regions=fmean(bool(probe.regions) for probe in noisy),
            retention=fmean(probe.extra[NOTE]["kept"] / probe.extra[NOTE]["of"] for probe in noisy),
            coverage=fmean(measured) if measured else 0.0,
        )
    return found
