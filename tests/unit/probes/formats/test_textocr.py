from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sightline.errors import SightlineError
from sightline.probes import read_textocr, write_regions


def document(annotations: list[dict[str, Any]], **image: Any) -> dict[str, Any]:
    info = {"id": "a", "width": 100, "height": 200, "set": "val", "file_name": "train/a.jpg"} | image
    anns = {f"a_{i}": {"area": 50.0, **annotation} for i, annotation in enumerate(annotations)}
    return {"imgs": {"a": info}, "anns": anns, "imgToAnns": {"a": list(anns)}}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def save(content: Any) -> Path:
        path = tmp_path / "annotations.json"
        path.write_text(json.dumps(content))
        return path

    return save


WITH_EMPTY = [
    {"utf8_string": " first ", "bbox": [10, 20, 10, 20]},
    {"utf8_string": "", "bbox": [30, 20, 10, 20]},
    {"utf8_string": "third", "bbox": [50, 20, 10, 20]},
]
BOXES = [(0.1, 0.1, 0.2, 0.2), (0.3, 0.1, 0.4, 0.2), (0.5, 0.1, 0.6, 0.2)]


def test_each_text_keeps_its_box(write: Any) -> None:
    ingest = read_textocr(write(document(WITH_EMPTY)))
    (record,) = ingest.records
    assert [(word.text, word.box) for word in record.words] == list(zip(["first", "", "third"], BOXES, strict=True))
    assert (record.image, record.width, record.height, record.split) == ("train/a.jpg", 100, 200, "val")
    assert ingest.counts.boxes_without_text == 1


def test_the_artifacts_shift_is_an_option(write: Any, tmp_path: Path) -> None:
    ingest = read_textocr(write(document(WITH_EMPTY)), pairing="shifted")
    (record,) = ingest.records
    assert [(word.text, word.box) for word in record.words] == list(zip(["first", "third", ""], BOXES, strict=True))
    write_regions(tmp_path / "r.jsonl", ingest.records, layout="artifact")
    row = json.loads((tmp_path / "r.jsonl").read_text())
    assert row["ocr_tokens"] == [{"text": t, "bbox": list(b)} for t, b in zip(["first", "third"], BOXES, strict=False)]
    assert row["evidence_region_count"] == 3


def test_boxes_that_leave_the_image_are_clipped_and_counted(write: Any) -> None:
    ingest = read_textocr(write(document([{"utf8_string": "edge", "bbox": [-10, 180, 30, 40]}])))
    assert ingest.records[0].words[0].box == (0.0, 0.9, 0.2, 1.0)
    assert ingest.counts.clipped_boxes == 1


def test_what_cannot_be_used_is_counted(write: Any) -> None:
    content = document(
        [
            {"utf8_string": "good", "bbox": [1, 1, 10, 10]},
            {"utf8_string": "outside", "bbox": [150, 1, 10, 10]},
            {"utf8_string": "flat", "bbox": [1, 1, 10, 0]},
            {"utf8_string": "short", "bbox": [1, 1, 10]},
            {"utf8_string": "infinite", "bbox": [1, 1, float("inf"), 10]},
            {"utf8_string": "vague", "bbox": [1, 1, 10, 10], "area": "large"},
            {"utf8_string": "half \ud83d", "bbox": [1, 1, 10, 10]},
            {"utf8_string": "tiny", "bbox": [1, 1, 10, 10], "area": 0.5},
        ]
    )
    content["imgToAnns"]["a"].append("nowhere")
    counts = read_textocr(write(content)).counts
    assert (counts.boxes, counts.dropped_no_area, counts.dropped_malformed) == (1, 2, 4)
    assert (counts.dropped_small, counts.dropped_missing) == (1, 1)


def test_numbers_beyond_every_float_are_met_like_other_odd_values(write: Any) -> None:
    vast = {"utf8_string": "vast", "bbox": [1, 1, 10, 10], "area": 10**400}
    assert read_textocr(write(document([vast]))).counts.dropped_malformed == 1
    with pytest.raises(SightlineError, match="no numeric width and height"):
        read_textocr(write(document([], width=10**400)))


def test_a_missing_area_is_computed(write: Any) -> None:
    counts = read_textocr(write(document([{"utf8_string": "w", "bbox": [1, 1, 10, 10], "area": None}]))).counts
    assert counts.boxes == 1


def test_tiny_pixel_boxes_are_pixels_unless_asked_otherwise(write: Any) -> None:
    path = write(document([{"utf8_string": "dot", "bbox": [0, 0, 1, 1]}]))
    assert read_textocr(path).records[0].words[0].box == (0.0, 0.0, 0.01, 0.005)
    assert read_textocr(path, small_boxes="normalised").records[0].words[0].box == (0.0, 0.0, 1.0, 1.0)


def test_images_without_boxes_are_left_out(write: Any) -> None:
    ingest = read_textocr(write(document([])))
    assert ingest.records == ()
    assert ingest.counts.images_without_boxes == 1


@pytest.mark.parametrize("name", ["../a.jpg", "/etc/a.jpg", "train/../../a.jpg", "C:\\a.jpg", "..\\a.jpg", ""])
def test_names_that_leave_the_root_are_refused(write: Any, name: str) -> None:
    with pytest.raises(SightlineError, match=r"image 'a': image name"):
        read_textocr(write(document([{"utf8_string": "w", "bbox": [1, 1, 10, 10]}], file_name=name)))


def test_other_files_are_refused(write: Any, tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="needs the objects imgs, anns and imgToAnns"):
        read_textocr(write({"imgs": {}}))
    with pytest.raises(SightlineError, match="image 'a': needs an object in imgs and a list in imgToAnns"):
        read_textocr(write({"imgs": {"a": 3}, "anns": {}, "imgToAnns": {}}))
    (tmp_path / "broken.json").write_text('{"imgs": ')
    with pytest.raises(SightlineError, match=r"broken\.json: not a JSON document"):
        read_textocr(tmp_path / "broken.json")
    with pytest.raises(SightlineError, match="cannot be read: No such file"):
        read_textocr(tmp_path / "absent.json")


def test_an_image_without_size_is_refused(write: Any) -> None:
    with pytest.raises(SightlineError, match="no numeric width and height"):
        read_textocr(write(document([], width="wide")))
