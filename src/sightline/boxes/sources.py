"""Which boxes selectors see. Coverage is audited against the annotated regions, whatever they are shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from sightline.boxes.detection import Detected
from sightline.boxes.detectors import DETECTORS
from sightline.boxes.noise import VARIANTS, simulate
from sightline.boxes.quality import best_ious
from sightline.core.probe import Probe
from sightline.core.registry import Registry
from sightline.core.selection import Method
from sightline.errors import SightlineError
from sightline.places import Place

BOX_SOURCES: Registry[BoxSource] = Registry("box source", group="sightline.box_sources", package="sightline.boxes")
"""By the name behind ``--box-source``. ``BOX_SOURCES.add("name", source)`` is all that a new one needs."""
ANNOTATION = "annotation"


@dataclass(frozen=True)
class Shown:
    """Probes with the boxes that selectors will see, and what those boxes are like."""

    probes: tuple[Probe, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """For the manifest: the rule, how well the boxes fit the annotation, what detecting them took."""
    ms: Mapping[str, float] | None = None
    """Per image name what a detector took; None when nothing was detected."""


class BoxSource(ABC):
    """One way to come by the boxes that selectors see."""

    searches: ClassVar[bool] = False
    """Whether images are searched first. That takes time, and is part of the cost of every arm that reads boxes."""

    @property
    def rule(self) -> str:
        """By what findings are chosen, where another release may have chosen otherwise; "" elsewhere."""
        return ""

    def check(self) -> None:
        """Refuses, before any work is done, what cannot run here."""
        return

    def search(self, images: Place, names: Iterable[str], tell: Callable[[str, Detected], object]) -> None:
        """Goes through the images (names below the folder ``images``) and tells of each what was found there."""
        return

    @abstractmethod
    def show(self, probes: Sequence[Probe], found: Mapping[str, Detected]) -> Shown:
        """Sets ``Probe.boxes``. ``found`` holds, by image name, what the search told of; empty without a search."""


def box_source(name: str) -> BoxSource:
    """The source of that name; every text detector is one, with an option behind a colon where it takes one."""
    from sightline.boxes.detected import DetectedBoxes, adopt_detectors

    adopt_detectors()
    kind, colon, option = name.partition(":")
    source = BOX_SOURCES.get(kind)
    if colon and not isinstance(source, DetectedBoxes):
        raise SightlineError(f"box source {kind} takes no option, got '{option}'")
    return DetectedBoxes(name) if colon else source


def source_under(profile: str, name: str) -> str:
    """What a profile means by a source: the artifact dropped what EasyOCR was less sure of, the paper says it did not.

    A source that says its option itself is left as it is.
    """
    least = getattr(DETECTORS.get(name), "ARTIFACT", None) if name in DETECTORS and profile == "artifact" else None
    return name if least is None else f"{name}:confidence={least:g}"


def refuse_other_rule(name: str, recorded: Mapping[str, Any], out: Place) -> None:
    """A run whose boxes were chosen by a rule of an earlier release is not gone on with by another."""
    before, now = recorded.get("rule"), box_source(name).rule
    if before and now and before != now:
        raise SightlineError(f"{out} holds a run with boxes {before}; {name} now means {now}; choose another --out")


def source_names() -> list[str]:
    """The annotation first, then the others by name."""
    from sightline.boxes.detected import adopt_detectors

    adopt_detectors()
    return sorted(BOX_SOURCES, key=lambda name: (name != ANNOTATION, name))


def check_source(name: str) -> None:
    """Refuses an unknown source, and one that cannot run here, before any work is done."""
    box_source(name).check()


def show_boxes(probes: Sequence[Probe], source: str, images: Place) -> Shown:
    """Sets ``Probe.boxes`` by the named source; ``annotation`` leaves a probe file's own boxes as they are."""
    shows = box_source(source)
    shows.check()
    found: dict[str, Detected] = {}
    if shows.searches:
        shows.search(images, [probe.image for probe in probes], found.__setitem__)
    return shows.show(probes, found)


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
    "BOX_SOURCES",
    "BoxSource",
    "Detected",
    "Shown",
    "box_source",
    "check_source",
    "noise_probes",
    "reads_boxes",
    "refuse_other_rule",
    "show_boxes",
    "source_names",
    "source_under",
]
