"""Detectors beside an audit: results in time for whoever needs them, errors to whoever waits, no search for nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from sightline.boxes import sources as detected
from sightline.boxes.beside import BoxesBeside
from sightline.boxes.detection import Detected
from sightline.core.probe import Probe
from sightline.errors import SightlineError

BOX = (0.1, 0.1, 0.3, 0.2)


def probe(image: str) -> Probe:
    return Probe(
        id=image, image=image, image_id=image, question="q", label="yes", target_text="T", source_text="T",
        regions=(BOX,),
    )  # fmt: skip


PROBES = [probe("first.png"), probe("second.png"), probe("third.png")]


def searching(monkeypatch: pytest.MonkeyPatch, step: Callable[[str], object]) -> None:
    """A detector that asks ``step`` before it tells of each image."""

    def detect(_: str, __: Path, names: Iterable[str], *, tell: Callable[[str, Detected], Any]) -> None:
        for name in names:
            step(name)
            tell(name, Detected((BOX,), 7.0, 0))

    monkeypatch.setattr(detected, "detect", detect)


def test_a_image_is_shown_while_later_ones_are_still_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    searching(monkeypatch, lambda name: None if name == "first.png" else go_on.wait(10))
    with BoxesBeside("rapidocr", Path("."), PROBES) as boxes:
        shown = boxes.shown(PROBES[:1])
        assert not go_on.is_set()
        assert shown.probes[0].boxes == (BOX,)
        assert shown.ms == {"first.png": 7.0}
        go_on.set()
        boxes.wait()
        whole = boxes.shown(PROBES)
    assert [p.boxes for p in whole.probes] == [(BOX,)] * 3
    assert whole.facts["mean_ms"] == 7.0


def test_what_goes_wrong_reaches_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(name: str) -> None:
        if name == "second.png":
            raise SightlineError("image 'second.png': cannot be read")

    searching(monkeypatch, step)
    with BoxesBeside("rapidocr", Path("."), PROBES) as boxes:
        assert boxes.shown(PROBES[:1]).probes[0].boxes == (BOX,)
        with pytest.raises(SightlineError, match=r"second\.png"):
            boxes.shown(PROBES[1:2])
        with pytest.raises(SightlineError, match=r"second\.png"):
            boxes.wait()


def test_leaving_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    go_on = threading.Event()

    def step(name: str) -> None:
        searched.append(name)
        go_on.wait(10)

    searching(monkeypatch, step)
    threading.Timer(0.2, go_on.set).start()
    with pytest.raises(ValueError, match="audit failed"), BoxesBeside("rapidocr", Path("."), PROBES):
        raise ValueError("audit failed")
    assert searched == ["first.png"]


def test_annotated_and_simulated_boxes_need_no_search() -> None:
    for source in ("annotation", "missing"):
        with BoxesBeside(source, Path("."), PROBES) as boxes:
            assert not boxes.detects
            boxes.wait()
            assert len(boxes.shown(PROBES).probes) == 3
