"""Which boxes selectors see. Coverage is audited against the annotated regions, whatever they are shown."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from threading import Thread
from typing import Any, ClassVar

from sightline.boxes.detection import Detected, detect
from sightline.boxes.detectors import DETECTORS, detector_named
from sightline.boxes.quality import BoxQuality, best_ious
from sightline.core.probe import Box, Probe
from sightline.core.registry import Registry
from sightline.core.selection import Method
from sightline.device import moved
from sightline.errors import SightlineError
from sightline.places.listing import Place
from sightline.progress import Progress

__all__ = [
    "BOX_SOURCES", "BoxSource", "Detected", "Shown", "box_source", "check_source", "noise_probes", "reads_boxes",
    "show_boxes", "source_under",
]  # fmt: skip

# Simulated detectors: annotated boxes that are lost, moved and joined by spurious ones, by a stated noise model.

SEED = 31
_LEAST = 1e-6


@dataclass(frozen=True)
class Noise:
    """One variant: every box is found with probability ``recall``, jittered, and joined by ``spurious`` others."""

    recall: float
    jitter: float
    spurious: int


VARIANTS = {
    "gt": Noise(1.0, 0.0, 0),
    "jitter_light": Noise(1.0, 0.15, 0),
    "jitter_heavy": Noise(1.0, 0.35, 0),
    "detected_like": Noise(0.85, 0.20, 1),
    "low_recall": Noise(0.60, 0.20, 1),
    "missing": Noise(0.0, 0.0, 0),
}


@dataclass(frozen=True)
class Simulated:
    boxes: tuple[Box, ...]
    found: int
    """How many of the annotated boxes were kept."""


def seeded_random(*parts: object) -> random.Random:
    """Mersenne Twister seeded by the first 64 bits of SHA-256 over the parts joined by colons."""
    return random.Random(int(sha256(":".join(map(str, parts)).encode()).hexdigest()[:16], 16))


def simulate(oracle: tuple[Box, ...], probe_id: str, variant: str) -> Simulated:
    """What a detector with this noise would show for one probe; drawn from probe and variant alone."""
    noise = VARIANTS[variant]
    rng = seeded_random(SEED, probe_id, variant)
    boxes = [_jittered(box, noise.jitter, rng) for box in oracle if rng.random() <= noise.recall]
    found = len(boxes)
    boxes += [_spurious(oracle, rng) for _ in range(noise.spurious)]
    return Simulated(tuple(boxes), found)


def _jittered(box: Box, jitter: float, rng: random.Random) -> Box:
    """Centre moved by U(-j, j) of each side, sides scaled by max(1/4, 1 + U(-j, j)), clipped to the image."""
    if jitter <= 0.0:
        return box
    width, height = max(_LEAST, box[2] - box[0]), max(_LEAST, box[3] - box[1])
    x = (box[0] + box[2]) / 2.0 + rng.uniform(-jitter, jitter) * width
    y = (box[1] + box[3]) / 2.0 + rng.uniform(-jitter, jitter) * height
    width *= max(0.25, 1.0 + rng.uniform(-jitter, jitter))
    height *= max(0.25, 1.0 + rng.uniform(-jitter, jitter))
    return clipped((x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0))


def _spurious(oracle: tuple[Box, ...], rng: random.Random) -> Box:
    """A box about the size of a drawn annotated one, anywhere in the image."""
    reference = rng.choice(oracle) if oracle else (0.0, 0.0, 0.04, 0.04)
    width = min(0.30, max(0.01, reference[2] - reference[0]) * rng.uniform(0.7, 1.8))
    height = min(0.30, max(0.01, reference[3] - reference[1]) * rng.uniform(0.7, 1.8))
    x = rng.uniform(width / 2.0, 1.0 - width / 2.0)
    y = rng.uniform(height / 2.0, 1.0 - height / 2.0)
    return clipped((x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0))


def clipped(box: Box) -> Box:
    """Within the unit square and at least 1e-6 wide and high."""
    left = min(max(box[0], 0.0), 1.0 - _LEAST)
    top = min(max(box[1], 0.0), 1.0 - _LEAST)
    return left, top, min(max(box[2], left + _LEAST), 1.0), min(max(box[3], top + _LEAST), 1.0)


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
    register_detectors()
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


class AnnotatedBoxes(BoxSource):
    """The boxes that the probe file carries, or else the annotated regions themselves; of open questions none.

    The regions of an open question are where its answer stands. ``gt`` shows them, as the oracle that it is.
    """

    def show(self, probes: Sequence[Probe], found: Mapping[str, Detected]) -> Shown:
        return Shown(tuple(probes))


BOX_SOURCES.add(ANNOTATION, AnnotatedBoxes())


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


@dataclass(frozen=True)
class DetectedBoxes(BoxSource):
    """What a text detector finds on each image, the same for all its probes."""

    detector: str
    """Its name, with an option behind a colon where it takes one."""
    searches: ClassVar[bool] = True

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


def register_detectors() -> None:
    """Makes every text detector a box source, also those that were registered since the last time."""
    for name in DETECTORS:
        if name not in BOX_SOURCES:
            BOX_SOURCES.add(name, DetectedBoxes(name))


# Boxes beside an audit: detectors search images in processes of their own while earlier ones are scored.


class _StoppedError(Exception):
    """Nobody waits any more."""


class BoxesBeside:
    """The boxes of one source for the probes of an audit.

    A source that searches starts at once and goes through the images in order; ``shown`` waits for those it is asked
    about. Annotated and simulated boxes need no search. Leaving the context ends the search.

    ``turn`` is what the search waits for, where several processes would do the same; it is told when nobody waits for
    its result any more.
    """

    def __init__(
        self,
        source: str,
        images: Place,
        probes: Sequence[Probe],
        turn: Callable[[Callable[[], bool]], AbstractContextManager[None]] = lambda given_up: nullcontext(),
    ) -> None:
        self._turn = turn
        self._source, self._images = box_source(source), images
        self.detects = self._source.searches
        names = dict.fromkeys(probe.image for probe in probes) if self.detects else {}
        self._found: dict[str, Future[Detected]] = {name: Future() for name in names}
        self._stopped = False
        self._thread = Thread(target=self._search, daemon=True)

    def __enter__(self) -> BoxesBeside:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._thread.join()

    def _search(self) -> None:
        try:
            if self._found:
                with self._turn(lambda: self._stopped):
                    if not self._stopped:
                        self._source.search(self._images, self._found, self._tell)
        except Exception as error:  # whoever waits for an image gets to hear it
            for future in self._found.values():
                if not future.done():
                    future.set_exception(error)

    def _tell(self, name: str, found: Detected) -> None:
        if self._stopped:
            raise _StoppedError
        self._found[name].set_result(found)
        moved()

    def wait(self) -> None:
        """Until every image has been searched."""
        if self._found:
            with Progress("finding boxes", len(self._found), "images") as progress:
                for future in self._found.values():
                    future.result()
                    progress.advance()

    def shown(self, probes: Sequence[Probe]) -> Shown:
        """The probes with their boxes; waits for the search of their images, no others."""
        names = dict.fromkeys(probe.image for probe in probes) if self.detects else {}
        return self._source.show(probes, {name: self._found[name].result() for name in names})
