"""COCO-Text, as version 2 is published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sightline.probes.annotations import detect_format, load_regions
from tests.unit.probes.formats.pages import in_pixels, refused


def annotation(number: int, box: list[float], text: str | None, **more: str) -> dict[str, Any]:
    said = {"class": "machine printed", "language": "english", "legibility": "legible"} | more
    spoken = {} if text is None else {"utf8_string": text}
    return {"id": number, "image_id": 217925, "bbox": box, "area": box[2] * box[3], "mask": [], **said, **spoken}


DOCUMENT: dict[str, Any] = {
    "cats": {},
    "anns": {
        "1": annotation(1, [100, 100, 60, 14], "Invoice"),
        "2": annotation(2, [170, 100, 50, 14], None, legibility="illegible"),
        "3": annotation(3, [100, 120, 140, 16], "Straße", language="not english"),
    },
    "imgs": {
        "217925": {
            "id": 217925,
            "set": "val",
            "width": 1000,
            "height": 800,
            "file_name": "COCO_train2014_000000217925.jpg",
        },
        "300": {"id": 300, "set": "train", "width": 10, "height": 10, "file_name": "COCO_train2014_000000000300.jpg"},
    },
    "imgToAnns": {"217925": [1, 2, 3], "300": []},
    "info": {"version": "2.0"},
}


def save(folder: Path, keys: str) -> Path:
    path = folder / "cocotext.v2.json"
    path.write_text(json.dumps({key: DOCUMENT[key] for key in keys.split()}))
    return path


@pytest.mark.parametrize(
    "keys", ["cats anns imgs imgToAnns info", "imgs anns cats imgToAnns info", "info imgs anns imgToAnns"]
)
def test_it_is_told_from_textocr_in_whatever_order_it_comes(tmp_path: Path, keys: str) -> None:
    assert detect_format(save(tmp_path, keys)) == "coco_text"


def test_words_that_nobody_could_read_are_boxes_without_text(tmp_path: Path) -> None:
    ingest = load_regions(save(tmp_path, "cats anns imgs imgToAnns"))
    (record,) = ingest.records
    assert in_pixels(record) == [
        ("Invoice", (100, 100, 160, 114)),
        ("", (170, 100, 220, 114)),
        ("Straße", (100, 120, 240, 136)),
    ]
    assert (record.image, record.split) == ("COCO_train2014_000000217925.jpg", "val")
    assert (record.record_id, record.dataset) == ("coco-text-217925", "COCO-Text")
    assert (ingest.counts.boxes_without_text, ingest.counts.images_without_boxes) == (1, 1)


def test_legibility_and_language_choose_the_words_that_count(tmp_path: Path) -> None:
    DOCUMENT["anns"]["4"] = annotation(4, [1, 1, 40, 10], "blur", legibility="illegible")
    DOCUMENT["imgToAnns"]["217925"].append(4)
    path = save(tmp_path, "cats anns imgs imgToAnns")

    def read(**options: Any) -> list[str]:
        return [word.text for word in load_regions(path, **options).records[0].words]

    assert read() == ["Invoice", "", "Straße", ""]
    assert read(legibility="any") == ["Invoice", "", "Straße", "blur"]
    assert read(language="english") == ["Invoice", "", "", ""]


def test_a_document_without_the_three_objects_is_refused(tmp_path: Path) -> None:
    refused(save(tmp_path, "anns imgs"), "it needs the objects imgs, anns and imgToAnns", file_format="coco_text")
