"""Detectors beside an audit: results in time for whoever needs them, errors to whoever waits, no search for nobody."""

from __future__ import annotations

import importlib.metadata
import json
import math
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from sightline.boxes import detection, sources
from sightline.boxes.detection import Detected, boxes_of, detect
from sightline.boxes.detectors import EasyOcr, FoundText, RapidOcr, Tesseract, detector_named, words_of_tsv
from sightline.boxes.quality import iou
from sightline.boxes.sources import BoxesBeside, check_source, show_boxes, source_under
from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.places.listing import place
from sightline.places.writing import write_whole
from tests.refusals import Refused

SIZE = (320, 200)
REGION = (60 / SIZE[0], 80 / SIZE[1], 200 / SIZE[0], 110 / SIZE[1])
FOUND = (0.1, 0.1, 0.3, 0.2)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two pages: one with a word, one without; what is found is remembered in a folder of the test."""
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    for name, text in (("word.png", "RECEIPT"), ("empty.png", "")):
        page = Image.new("RGB", SIZE, "white")
        if text:
            ImageDraw.Draw(page).text((60, 80), text, fill="black", font=ImageFont.load_default(28))
        page.save(tmp_path / name)
    return tmp_path


def probe(image: str) -> Probe:
    return Probe(image, image, image, "q", "yes", "RECEIPT", "RECEIPT", (REGION,))


def test_rapidocr_finds_a_word_or_nothing_and_remembers_both(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = detect("rapidocr", images, ["word.png", "empty.png", "word.png"])
    (box,) = found["word.png"].boxes
    assert iou(box, REGION) > 0.5
    assert found["empty.png"].boxes == ()
    assert all(result.ms > 0 for result in found.values())
    (images / "copy.png").write_bytes((images / "word.png").read_bytes())
    with monkeypatch.context() as patched:
        patched.setattr(detection, "_run", lambda *a: pytest.fail("the detector ran again"))
        assert detect("rapidocr", images, ["copy.png"])["copy.png"] == found["word.png"], "by content"
        shown = show_boxes([probe("word.png"), probe("empty.png")], "rapidocr", images)
    assert shown.ms is not None
    assert set(shown.ms) == {"word.png", "empty.png"}
    assert shown.facts["missing_rate"] == shown.facts["empty_rate"] == 0.5
    assert shown.facts["mean_ms"] == pytest.approx(np.mean(list(shown.ms.values())))
    assert "at least 0.5" in shown.facts["rule"]
    assert [p.regions for p in shown.probes] == [(REGION,)] * 2
    assert [len(p.visible_boxes) for p in shown.probes] == [1, 0]


@pytest.mark.parametrize(
    "content",
    [
        "[" * 3000, "[]", '{"boxes": [[0.1, 0.1, NaN, 0.2]], "ms": 1, "outside": 0}',
        '{"boxes": [[0.1, 0.1, -0.5, 0.2]], "ms": 1, "outside": 0}', '{"boxes": [], "ms": NaN, "outside": 0}',
        '{"boxes": [], "ms": 1, "outside": Infinity}',
    ],
)  # fmt: skip
def test_a_remembered_result_that_no_detector_wrote_is_forgotten(tmp_path: Path, content: str) -> None:
    (tmp_path / "found.json").write_text(content)
    assert detection._read(tmp_path / "found.json") is None


def test_urls_are_searched_as_folders_and_what_is_broken_is_forgotten_or_named(
    images: Path, bucket: str, refused: Refused
) -> None:
    write_whole(place(f"{bucket}/images/word.png"), (images / "word.png").read_bytes())
    first = detect("rapidocr", place(f"{bucket}/images"), ["word.png"])["word.png"]
    (file,) = (images / "cache" / "boxes").rglob("*.json")
    file.write_text("{")
    (images / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n not an image")
    refused("cannot be read", detect, "rapidocr", images, ["word.png", "broken.png"], workers=1)
    assert json.loads(file.read_text())["boxes"], "what could be read is remembered, in the place of what was broken"
    assert len(list((images / "cache" / "boxes").rglob("*.json"))) == 1
    assert detect("rapidocr", images, ["word.png"])["word.png"].boxes == first.boxes


def test_a_detector_that_dies_is_reported(images: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    monkeypatch.setattr("sys.executable", "/bin/true")
    refused("died on image 'empty", detect, "rapidocr", images, ["empty.png"])


def corners(*box: float) -> tuple[tuple[float, float], ...]:
    x1, y1, x2, y2 = box
    return ((x1, y1), (x2, y1), (x2, y2), (x1, y2))


def test_findings_outside_the_image_are_clipped_and_alike_ones_counted_once() -> None:
    outlines = [
        corners(-10, -10, 50, 20), corners(-30, 0, -10, 20), corners(10, 10, 10, 20), corners(math.nan, 0, 10, 10), (),
        ((20, 0), (60, 40), (20, 80), (0, 40)),
    ]  # fmt: skip
    findings = [*(FoundText(outline, 0.9) for outline in outlines), FoundText(corners(0, 0, 50, 20), 0.5)]
    assert boxes_of(findings, 100, 100) == (((0.0, 0.0, 0.5, 0.2), (0.0, 0.0, 0.6, 0.8)), 4)


def test_tesseract_words_have_a_reading(refused: Refused) -> None:
    header = "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext"
    rows = ["1\t1\t0\t0\t0\t0\t0\t0\t90\t90\t-1\t", "5\t1\t1\t1\t1\t1\t10\t20\t30\t8\t96.5\tTOTAL",
            "5\t1\t1\t1\t1\t2\t50\t20\t30\t8\t12\tx"]  # fmt: skip
    first, second = words_of_tsv("\n".join([header, *rows]))
    assert (first.text, first.outline[0], first.outline[2]) == ("TOTAL", (10.0, 20.0), (40.0, 28.0))
    assert first.confidence >= Tesseract.LEAST > second.confidence
    refused("no table", words_of_tsv, "nothing")


class RecordedEasyOcr:
    """Stands in for the package, which is not part of the test environment: records what its reader is given."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, dict[str, Any], np.ndarray]] = []

    def Reader(self, languages: list[str], **options: Any) -> RecordedEasyOcr:  # noqa: N802 - the package's name
        assert languages == ["en"]
        assert options["download_enabled"] is False
        return self

    def readtext(self, image: Any, **options: Any) -> list[tuple[list[list[int]], str, float]]:
        self.given.append((image, options, np.asarray(Image.open(image))))
        outlines = [[[x, 0], [x + 5, 0], [x + 5, 5], [x, 5]] for x in (0, 10, 20)]
        return list(zip(outlines, ("a", "b", "c"), (0.05, 0.2, 0.9), strict=True))


@pytest.fixture
def easyocr(monkeypatch: pytest.MonkeyPatch) -> RecordedEasyOcr:
    stand_in = RecordedEasyOcr()
    monkeypatch.setitem(sys.modules, "easyocr", stand_in)
    monkeypatch.setattr(EasyOcr, "require", classmethod(lambda cls: "1.7"))
    return stand_in


def test_easyocr_reads_the_image_from_a_file_in_its_own_colours(easyocr: RecordedEasyOcr) -> None:
    image = np.zeros((6, 30, 3), np.uint8)
    image[..., 0], image[2, 3] = 200, (1, 2, 3)
    EasyOcr().read(image)
    ((given, options, seen),) = easyocr.given
    assert isinstance(given, str), "an array would be taken for BGR"
    assert (seen == image).all()
    assert options == {"detail": 1, "paragraph": False}
    assert not Path(given).exists(), "nothing is left behind"


@pytest.mark.usefixtures("easyocr")
def test_every_detection_counts_unless_it_must_be_sure() -> None:
    image = np.zeros((6, 30, 3), np.uint8)
    bounds = {"": "abc", ":confidence=0.2": "bc", ":confidence=0.5": "c", ":confidence=1": ""}
    for option, kept in bounds.items():
        name = f"easyocr{option}"
        kind = detector_named(name)
        assert "".join(found.text for found in kind().find(image)) == kept
        assert kind.name == "easyocr"
        assert f"at least {name.partition('=')[2] or 0}" in kind.rule
        assert "".join(found.text for found in kind().read(image)) == "abc", "a screen reads all"


def test_results_are_remembered_by_confidence(
    images: Path, easyocr: RecordedEasyOcr, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_this_process(detector: str, root: Path, names: list[str], workers: int | None, done: Any) -> None:
        for name in names:
            done(name, detection.detect_one(detector_named(detector)(), root, name))

    monkeypatch.setattr(detection, "_run", in_this_process)
    every = detect("easyocr", images, ["word.png"])["word.png"]
    sure = detect("easyocr:confidence=0.2", images, ["word.png"])["word.png"]
    assert (len(every.boxes), len(sure.boxes), len(easyocr.given)) == (3, 2, 2)
    assert detect("easyocr:confidence=0.2", images, ["word.png"])["word.png"] == sure
    assert len(easyocr.given) == 2, "the second time it is remembered"
    assert len(list((images / "cache" / "boxes").iterdir())) == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("easyocr:confidence=2", "takes confidence=0 to confidence=1, got 'confidence=2'"),
        ("easyocr:confidence=high", "takes confidence=0 to confidence=1"),
        ("easyocr:least=0.2", "takes confidence=0 to confidence=1, got 'least=0"),
        ("rapidocr:confidence=0.2", "text detector rapidocr takes no option"),
        ("missing:confidence=0.2", "box source missing takes no option"),
        ("easyocrr:confidence=0.2", "easyocr"),
    ],
)
def test_an_option_that_means_nothing_is_refused(name: str, words: str, refused: Refused) -> None:
    refused(words, check_source, name)


def test_the_artifact_profile_drops_what_easyocr_is_less_sure_of() -> None:
    assert source_under("artifact", "easyocr") == "easyocr:confidence=0.2"
    others = ("artifact", "easyocr:confidence=0"), ("paper", "easyocr"), ("artifact", "rapidocr")
    for profile, source in (*others, ("artifact", "annotation")):
        assert source_under(profile, source) == source, "an option wins over the profile"


def test_absent_detectors_say_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    with monkeypatch.context() as patched:
        patched.setattr("importlib.metadata.version", absent)
        refused("rapidocr is not installed; pip install rapidocr", check_source, "rapidocr")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("EASYOCR_MODULE_PATH", str(tmp_path))
    monkeypatch.setattr("sightline.boxes.detectors._version", lambda package, how: "1.7")
    bare: Any = type("Spec", (), {"origin": str(tmp_path / "__init__.py")})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: bare)
    for kind, says in (
        (Tesseract, "tesseract is not installed; install"),
        (EasyOcr, "craft_mlt_25k.pth is missing; run"),
        (RapidOcr, "has no weights in"),
    ):
        refused(says, kind.require)


PROBES = [probe("first.png"), probe("second.png"), probe("third.png")]


def searching(monkeypatch: pytest.MonkeyPatch, step: Callable[[str], object]) -> None:
    """A detector that asks ``step`` before it tells of each image."""

    def detect(_: str, __: Path, names: Iterable[str], *, tell: Callable[[str, Detected], Any]) -> None:
        for name in names:
            step(name)
            tell(name, Detected((FOUND,), 7.0, 0))

    monkeypatch.setattr(sources, "detect", detect)


def test_an_image_is_shown_while_later_ones_are_still_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    searching(monkeypatch, lambda name: None if name == "first.png" else go_on.wait(10))
    with BoxesBeside("rapidocr", Path("."), PROBES) as boxes:
        shown = boxes.shown(PROBES[:1])
        assert not go_on.is_set()
        assert (shown.probes[0].boxes, shown.ms) == ((FOUND,), {"first.png": 7.0})
        go_on.set()
        boxes.wait()
        whole = boxes.shown(PROBES)
    assert [p.boxes for p in whole.probes] == [(FOUND,)] * 3
    assert whole.facts["mean_ms"] == 7.0


def test_what_goes_wrong_reaches_whoever_waits(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    def step(name: str) -> None:
        if name == "second.png":
            raise SightlineError("image 'second.png': cannot be read")

    searching(monkeypatch, step)
    with BoxesBeside("rapidocr", Path("."), PROBES) as boxes:
        assert boxes.shown(PROBES[:1]).probes[0].boxes == (FOUND,)
        refused("second.png", boxes.shown, PROBES[1:2])
        refused("second.png", boxes.wait)


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
