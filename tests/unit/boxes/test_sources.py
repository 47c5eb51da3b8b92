"""Where boxes come from: one registry of annotation, noise variants, detectors and other people's sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from sightline.boxes import detectors
from sightline.boxes.beside import BoxesBeside
from sightline.boxes.detection import Detected
from sightline.boxes.detectors import DETECTORS, FindsByReading, FoundText
from sightline.boxes.sources import (
    BOX_SOURCES,
    SEED,
    VARIANTS,
    BoxSource,
    Shown,
    check_source,
    show_boxes,
    source_names,
)
from sightline.core.probe import Box, Probe
from sightline.errors import SightlineError

REGION: Box = (0.1, 0.1, 0.3, 0.2)
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
PROBE = Probe(
    id="p", image="a.png", image_id="a", question="q", label="yes", target_text="T", source_text="T", regions=(REGION,)
)


class Sweeping(BoxSource):
    """Takes a look at every image and shows it whole."""

    searches: ClassVar[bool] = True

    def search(self, images: Path, names: Iterable[str], tell: Callable[[str, Detected], object]) -> None:
        for name in names:
            tell(name, Detected((WHOLE,), 3.0, 0))

    def show(self, probes: Sequence[Probe], found: Mapping[str, Detected]) -> Shown:
        boxed = tuple(replace(probe, boxes=found[probe.image].boxes) for probe in probes)
        return Shown(boxed, {"rule": "everything"}, {name: result.ms for name, result in found.items()})


@pytest.fixture
def sweeping() -> Iterator[str]:
    BOX_SOURCES.add("sweeping", Sweeping())
    yield "sweeping"
    del BOX_SOURCES._entries["sweeping"]


def test_annotation_variants_and_detectors_are_sources_of_one_registry() -> None:
    assert source_names()[0] == "annotation"
    assert set(source_names()) >= {"annotation", *VARIANTS, *DETECTORS}
    assert set(source_names()) == set(BOX_SOURCES)


def test_an_unknown_source_is_met_with_the_nearest_name() -> None:
    with pytest.raises(SightlineError, match="unknown box source 'jiter_light'; did you mean 'jitter_light'"):
        check_source("jiter_light")
    with pytest.raises(SightlineError, match="unknown box source 'zzz'; known: annotation"):
        show_boxes([PROBE], "zzz", Path("."))


def test_the_annotation_leaves_probes_as_they_are() -> None:
    shown = show_boxes([PROBE, replace(PROBE, boxes=(WHOLE,))], "annotation", Path("."))
    assert [probe.visible_boxes for probe in shown.probes] == [(REGION,), (WHOLE,)]
    assert (shown.facts, shown.ms) == ({}, None)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_noise_variant_states_its_rule(variant: str) -> None:
    shown = show_boxes([PROBE], variant, Path("."))
    assert shown.facts["rule"] == {**asdict(VARIANTS[variant]), "seed": SEED}
    assert shown.facts["probes"] == 1
    assert shown.ms is None
    assert shown.probes[0].regions == (REGION,)


def test_somebody_elses_source_is_searched_shown_and_billed(sweeping: str) -> None:
    check_source(sweeping)
    shown = show_boxes([PROBE], sweeping, Path("."))
    assert (shown.probes[0].boxes, shown.facts, shown.ms) == ((WHOLE,), {"rule": "everything"}, {"a.png": 3.0})
    with BoxesBeside(sweeping, Path("."), [PROBE]) as beside:
        assert beside.detects
        beside.wait()
        assert beside.shown([PROBE]) == shown


def test_a_detector_is_a_source_however_late_it_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    source_names()

    class Late:
        name: ClassVar[str] = "late"
        rule: ClassVar[str] = "at least something"

        @classmethod
        def require(cls) -> str:
            raise SightlineError("late is not installed; wait")

    known: dict[str, Any] = dict(DETECTORS._entries)
    monkeypatch.setattr(DETECTORS, "_entries", {**known, "late": Late})
    monkeypatch.setattr(BOX_SOURCES, "_entries", dict(BOX_SOURCES._entries))
    assert "late" in source_names()
    with pytest.raises(SightlineError, match="late is not installed; wait"):
        check_source("late")


def test_a_detector_that_reads_finds_what_it_is_sure_enough_of() -> None:
    class Reader(FindsByReading):
        LEAST = 0.5

        def read(self, image: np.ndarray) -> list[FoundText]:
            return [FoundText((), sure) for sure in (0.49, 0.5, 0.9)]

    found = Reader().find(np.zeros((1, 1, 3), np.uint8))
    assert [finding.confidence for finding in found] == [0.5, 0.9]
    assert issubclass(detectors.EasyOcr, FindsByReading)
    assert issubclass(detectors.Tesseract, FindsByReading)
