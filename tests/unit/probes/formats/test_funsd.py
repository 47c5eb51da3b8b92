"""FUNSD, one file per form, and XFUND, one file per language."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sightline.probes.annotations import detect_format, load_regions
from tests.unit.probes.formats.pages import in_pixels, paint, refused

FORM: list[dict[str, Any]] = [
    {
        "box": [95, 98, 405, 116],
        "text": "Invoice date:",
        "label": "question",
        "words": [{"box": [100, 100, 160, 114], "text": "Invoice"}, {"box": [170, 100, 220, 114], "text": "date:"}],
        "linking": [[0, 1]],
        "id": 0,
    },
    {
        "box": [100, 120, 240, 136],
        "text": "12.07.2031",
        "label": "answer",
        "words": [{"box": [100, 120, 240, 136], "text": "12.07.2031"}],
        "linking": [[0, 1]],
        "id": 1,
    },
]
WORDS = [("Invoice", (100, 100, 160, 114)), ("date:", (170, 100, 220, 114)), ("12.07.2031", (100, 120, 240, 136))]
LINES = [("Invoice date:", (95, 98, 405, 116)), ("12.07.2031", (100, 120, 240, 136))]


def xfund(*forms: Any) -> dict[str, Any]:
    return {"lang": "de", "version": "0.1", "split": "val", "documents": list(forms)}


def german(number: int = 0) -> dict[str, Any]:
    image = {"fname": f"de_val_{number}.jpg", "width": 1000, "height": 800}
    return {"id": f"de_val_{number}", "uid": "0a", "document": FORM, "img": image}


def save(path: Path, content: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A split as FUNSD is packed: annotations beside images."""
    for name in ("82200067_0069", "00040534"):
        save(tmp_path / "annotations" / f"{name}.json", {"form": FORM})
        paint(tmp_path / "images" / f"{name}.png")
    return tmp_path


def test_a_form_is_as_large_as_the_image_of_its_name(published: Path) -> None:
    path = published / "annotations" / "00040534.json"
    assert detect_format(path) == "funsd"
    (record,) = load_regions(path).records
    assert in_pixels(record) == WORDS
    assert (record.image, record.image_id, record.dataset) == ("00040534.png", "00040534", "FUNSD")
    assert in_pixels(load_regions(path, level="lines").records[0]) == LINES


@pytest.mark.parametrize("folder", ["annotations", "."])
def test_a_folder_is_read_in_the_order_of_names(published: Path, folder: str) -> None:
    ingest = load_regions(published / folder)
    assert [record.image_id for record in ingest.records] == ["00040534", "82200067_0069"]
    assert ingest.images is not None
    assert ingest.images.samefile(published / "images")
    assert load_regions(published / folder, images=published / "images").records == ingest.records


def test_a_form_without_its_image_says_where_it_was_looked_for(tmp_path: Path) -> None:
    path = save(tmp_path / "form.json", {"form": FORM})
    refused(path, r"no image of that name \(form.png, .jpg, .tif, ...\) in .*; say where with --images")


def test_an_entity_without_a_box_is_named(published: Path) -> None:
    path = published / "annotations" / "00040534.json"
    save(path, {"form": [*FORM, {"text": "x", "words": []}]})
    refused(path, "form entity 2: needs a 'box' of four numbers")
    save(path, {"form": [{**FORM[0], "words": [{"text": "x", "box": [1, 2, 3]}]}]})
    refused(path, "form entity 0 word 0: needs a 'box'")
    save(path, {"form": {}})
    refused(path, "form is not a list of entities")
    path.write_text('{"form": [')
    refused(path, "not a JSON document")


def test_xfund_is_read_without_its_images(tmp_path: Path) -> None:
    path = save(tmp_path / "de.val.json", xfund(german(0), german(1)))
    assert detect_format(path) == "xfund"
    ingest = load_regions(path)
    assert [(record.image_id, record.image) for record in ingest.records] == [
        ("de_val_0", "de_val_0.jpg"),
        ("de_val_1", "de_val_1.jpg"),
    ]
    assert in_pixels(ingest.records[0]) == WORDS
    assert (ingest.records[0].width, ingest.records[0].dataset) == (1000, "XFUND-de")
    assert in_pixels(load_regions(path, level="lines").records[1]) == LINES


def test_an_xfund_document_that_names_no_image_is_named(tmp_path: Path) -> None:
    refused(
        save(tmp_path / "a.json", xfund(german(), {"id": "x", "document": FORM})), "document 1 does not name its im"
    )
    refused(save(tmp_path / "a.json", {"documents": {}}), "needs the list 'documents'", file_format="xfund")


def test_single_boxes_far_away_are_dropped_and_counted(tmp_path: Path) -> None:
    strange = {**FORM[1], "words": [{"text": "lost", "box": [9000, 10, 9100, 20]}, *FORM[1]["words"]]}
    path = save(tmp_path / "a.json", xfund({**german(), "document": [FORM[0], strange]}))
    ingest = load_regions(path)
    assert in_pixels(ingest.records[0]) == WORDS
    assert ingest.counts.dropped_malformed == 1
