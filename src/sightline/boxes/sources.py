"""Which boxes selectors see. Coverage is audited against the annotated regions, whatever they are shown."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sightline.boxes.detection import Detected, detect
from sightline.boxes.detectors import DETECTORS
from sightline.boxes.noise import SEED, VARIANTS, simulate
from sightline.boxes.quality import BoxQuality, best_ious
from sightline.core.probe import Probe
from sightline.core.selection import Method
from sightline.errors import SightlineError

ANNOTATION = "annotation"


@dataclass(frozen=True)
class Shown:
    """Probes with the boxes that selectors will see, and what those boxes are like."""

    probes: tuple[Probe, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """For the manifest: the rule, how well the boxes fit the annotation, what detecting them took."""
    ms: Mapping[str, float] | None = None
    """Per image name what a detector took; None when nothing was detected."""


def source_names() -> list[str]:
    return [ANNOTATION, *VARIANTS, *DETECTORS.names()]


def check_source(name: str) -> None:
    """Refuses an unknown source, and a detector that cannot run here, before any work is done."""
    if name in DETECTORS:
        DETECTORS.get(name).require()
    elif name != ANNOTATION and name not in VARIANTS:
        close = difflib.get_close_matches(name, source_names(), n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"choose from {', '.join(source_names())}"
        raise SightlineError(f"unknown box source '{name}'; {hint}")


def show_boxes(probes: Sequence[Probe], source: str, images: Path) -> Shown:
    """Sets ``Probe.boxes`` by the named source; ``annotation`` leaves a probe file's own boxes as they are."""
    check_source(source)
    if source == ANNOTATION:
        return Shown(tuple(probes))
    if source in VARIANTS:
        shown = tuple(with_noise(probe, source) for probe in probes)
        rule = {**asdict(VARIANTS[source]), "seed": SEED}
        return Shown(shown, {"rule": rule, **asdict(BoxQuality.of(shown))})
    return show_found(probes, source, detect(source, images, [probe.image for probe in probes]))


def show_found(probes: Sequence[Probe], source: str, found: Mapping[str, Detected]) -> Shown:
    """Sets ``Probe.boxes`` to what a detector found on each image."""
    shown = tuple(replace(probe, boxes=found[probe.image].boxes) for probe in probes)
    ms = {name: result.ms for name, result in found.items()}
    kind = DETECTORS.get(source)
    facts = {
        "rule": kind.rule,
        "version": kind.require(),
        **asdict(BoxQuality.of(shown)),
        "boxes_per_image": sum(len(result.boxes) for result in found.values()) / len(found),
        "outside_image": sum(result.outside for result in found.values()),
        "mean_ms": sum(ms.values()) / len(ms),
    }
    return Shown(shown, facts, ms)


def with_noise(probe: Probe, variant: str) -> Probe:
    return replace(probe, boxes=simulate(probe.regions, probe.id, variant).boxes)


def noise_probes(probes: Sequence[Probe], variant: str) -> list[Probe]:
    """A control set in which every probe shows simulated boxes and says how they came about."""
    noise = VARIANTS[variant]
    found = []
    for probe in probes:
        simulated = simulate(probe.regions, probe.id, variant)
        best = best_ious(probe.regions, simulated.boxes)
        facts = {
            "bbox_source": f"simulated_ocr_{variant}",
            "box_robustness_variant": variant,
            "box_detector_recall_target": noise.recall,
            "box_detector_jitter_frac": noise.jitter,
            "box_detector_spurious_count": noise.spurious,
            "box_detector_observed_count": len(simulated.boxes),
            "box_detector_kept_oracle_count": simulated.found,
            "box_detector_mean_best_iou": sum(best) / len(best) if best else 0.0,
        }
        found.append(replace(probe, boxes=simulated.boxes, extra={**probe.extra, **facts}))
    return found


def reads_boxes(selector: Method) -> bool:
    """Whether finding boxes is part of a selector's cost: it reads them, or nobody has said that it does not."""
    return selector.reads_boxes is not False


__all__ = [
    "Detected",
    "Shown",
    "check_source",
    "noise_probes",
    "reads_boxes",
    "show_boxes",
    "show_found",
    "source_names",
]
