"""What Microsoft's Read service writes, in its older and newer form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sightline.probes.annotations import detect_format, load_regions
from tests.unit.probes.formats.pages import in_pixels, paint, refused


def outline(left: float, top: float, right: float, bottom: float) -> list[float]:
    return [left, top, right, top, right, bottom, left, bottom]


WORDS: list[dict[str, Any]] = [
    {"boundingBox": outline(100, 100, 160, 114), "text": "Invoice"},
    {"boundingBox": outline(170, 99, 220, 114), "text": "date:", "confidence": "Low"},
]
LINES = [{"boundingBox": outline(100, 99, 220, 114), "text": "Invoice date:", "words": WORDS}]
PAGE = {"page": 1, "clockwiseOrientation": 0.3, "width": 1000, "height": 800, "unit": "pixel", "lines": LINES}


def save(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def test_words_and_lines_are_read_with_the_box_around_their_outline(tmp_path: Path) -> None:
    path = save(tmp_path / "ocr" / "doc_1.json", {"status": "Succeeded", "recognitionResults": [PAGE]})
    (record,) = load_regions(path).records
    assert in_pixels(record) == [("Invoice", (100, 100, 160, 114)), ("date:", (170, 99, 220, 114))]
    (lines,) = load_regions(path, level="lines").records
    assert in_pixels(lines) == [("Invoice date:", (100, 99, 220, 114))]
    assert (record.width, record.height) == (1000, 800)


def test_without_an_image_beside_it_a_page_is_docvqas(tmp_path: Path) -> None:
    path = save(tmp_path / "ocr_results" / "doc_1.json", {"recognitionResults": [PAGE]})
    assert load_regions(path).records[0].image == "documents/doc_1.png"
    paint(tmp_path / "images" / "doc_1.png")
    found = load_regions(path)
    assert found.records[0].image == "doc_1.png"
    assert found.images is not None
    assert found.images.name == "images"


def test_a_folder_of_pages_is_recognised(tmp_path: Path) -> None:
    for name in ("b", "a"):
        save(tmp_path / f"{name}.json", {"recognitionResults": [PAGE]})
    (tmp_path / "notes.json").write_text("{}")
    assert detect_format(tmp_path) == "ms_read"
    ingest = load_regions(tmp_path)
    assert [record.image_id for record in ingest.records] == ["documents/a", "documents/b"]
    assert ingest.counts.files_left_out == 1


def test_later_versions_give_confidences_and_other_units(tmp_path: Path) -> None:
    words = [{**word, "confidence": sure} for word, sure in zip(WORDS, (0.95, 0.4), strict=True)]
    page = {**PAGE, "lines": [{**LINES[0], "words": words}]}
    path = save(tmp_path / "a.json", {"status": "succeeded", "analyzeResult": {"readResults": [page]}})
    assert [word.text for word in load_regions(path, min_confidence=90).records[0].words] == ["Invoice", ""]
    inches = {**PAGE, "unit": "inch"}
    (record,) = load_regions(save(path, {"analyzeResult": {"readResults": [inches]}})).records
    assert (record.width, record.height) == (None, None)
    assert record.words[0].box == (0.1, 0.125, 0.16, 0.1425)


def test_a_word_of_low_confidence_may_be_left_without_text(tmp_path: Path) -> None:
    path = save(tmp_path / "a.json", {"recognitionResults": [PAGE]})
    assert [word.text for word in load_regions(path, min_confidence=60).records[0].words] == ["Invoice", ""]
    assert [word.text for word in load_regions(path, min_confidence=50).records[0].words] == ["Invoice", "date:"]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"recognitionResults": []}, "needs a list of pages under 'recognitionResults'"),
        ({"recognitionResults": [{}]}, "a page has no list of 'lines'"),
        ({"recognitionResults": [{**PAGE, "lines": [{"text": 3}]}]}, "a line or word has no 'text'"),
        (
            {"recognitionResults": [{**PAGE, "lines": [{"text": "x", "boundingBox": [1, 2, 3]}]}]},
            "is not a list of points",
        ),
        (
            {"recognitionResults": [{**PAGE, "lines": [{"text": "x", "boundingBox": [1, 2, 10**400, 4]}]}]},
            "has a coordinate beyond every image",
        ),
        ({"recognitionResults": [PAGE, PAGE]}, "was already described by another page"),
    ],
)
def test_what_is_no_page_is_refused_in_one_line(tmp_path: Path, document: Any, says: str) -> None:
    refused(save(tmp_path / "a.json", document), says, file_format="ms_read")
