"""Evidence that people draw: rows are read as they stand, checked, and become regions and roles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.probes.typed_rows import (
    STATUSES,
    evidence_of_rows,
    read_typed_rows,
    shown_size,
    typed_row,
    write_typed_rows,
)

BOX = {"x": 310, "y": 420, "w": 80, "h": 20, "label": "answer_value:2000"}
ROW = {
    "sample_id": "docvqa:1", "task": "docvqa", "question_id": "1", "evidence_units": "one value", "boxes": [BOX],
    "notes": "clear", "status": "annotated",
}  # fmt: skip
PROBE = Probe(
    "docvqa:1", "a.png", "a", "?", "open", "", "", ((0.1, 0.2, 0.3, 0.25), (0.5, 0.5, 0.6, 0.6)),
    answers=("2000",), roles=("answer_value", "field_label"), task="docvqa",
)  # fmt: skip


def save(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_row_is_written_as_it_was_read(tmp_path: Path) -> None:
    path = save(tmp_path / "rows.jsonl", ROW, {**ROW, "sample_id": "docvqa:2", "boxes": [], "status": "not_visible"})
    write_typed_rows(tmp_path / "again.jsonl", read_typed_rows(path))
    assert list(map(json.loads, (tmp_path / "again.jsonl").open())) == list(map(json.loads, path.open()))


def test_boxes_are_in_pixels_of_the_image_as_it_was_shown(tmp_path: Path) -> None:
    rows = read_typed_rows(save(tmp_path / "rows.jsonl", ROW))
    found = evidence_of_rows([PROBE], rows, lambda image: (3200, 2400))
    assert found["docvqa:1"].regions == ((310 / 1600, 420 / 1200, 390 / 1600, 440 / 1200),)
    assert found["docvqa:1"].roles == ("answer_value",)


@pytest.mark.parametrize(
    ("size", "shown"),
    [((3200, 2400), (1600, 1200)), ((1000, 800), (1000, 800)), ((500, 5000), (160, 1600)), ((1, 9000), (1, 1600))],
)
def test_images_are_shown_with_no_side_above_1600_pixels(size: tuple[int, int], shown: tuple[int, int]) -> None:
    assert shown_size(*size) == shown


def test_only_annotated_rows_are_evidence(tmp_path: Path) -> None:
    for status in STATUSES:
        rows = read_typed_rows(save(tmp_path / "rows.jsonl", {**ROW, "status": status}))
        assert bool(evidence_of_rows([PROBE], rows, lambda image: (1000, 800))) == (status == "annotated")


def test_the_regions_of_a_probe_come_back_through_a_row() -> None:
    row = typed_row(PROBE, 3200, 1600)
    assert row.status == "needs_review"
    assert [box.label for box in row.boxes] == ["answer_value:2000", "field_label:"]
    evidence = row.evidence(1600, 800)
    assert evidence.roles == PROBE.roles
    for found, region in zip(evidence.regions, PROBE.regions, strict=True):
        assert found == pytest.approx(region, abs=1e-5)
    assert typed_row(Probe("p", "a.png", "a", "?", "open", "", "", (), answers=("x",)), 10, 10).status == "unannotated"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"status": "done"}, "status 'done' is not one of annotated, needs_review"),
        ({"sample_id": ""}, "has no sample_id"),
        ({"boxes": {}}, "boxes {} are not a list"),
        ({"boxes": [{**BOX, "w": None}]}, "is not an object with numbers x, y, w, h and a label"),
        ({"boxes": [{**BOX, "label": ""}]}, "label '' does not begin with one of answer_value"),
        ({"boxes": [{**BOX, "label": "total:2000"}]}, "label 'total:2000' does not begin with one of answer_value"),
        ({"colour": "red"}, "unknown key 'colour'"),
    ],
)
def test_a_row_that_is_not_one_is_refused_with_its_line(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    path = save(tmp_path / "rows.jsonl", {**ROW, **changes})
    with pytest.raises(SightlineError, match=says) as caught:
        read_typed_rows(path)
    assert str(caught.value).startswith(f"{path} line 1: ")


@pytest.mark.parametrize(
    ("box", "says"),
    [
        ({**BOX, "w": 0}, "box 'answer_value:2000' has no width or no height"),
        ({**BOX, "x": 925}, "box 'answer_value:2000' leaves its image of 1000 x 800 pixels"),
        ({**BOX, "y": -1.5}, "leaves its image"),
        ({**BOX, "x": 1000, "w": 1}, "lies outside its image"),
    ],
)
def test_a_box_must_lie_within_its_image(tmp_path: Path, box: dict[str, Any], says: str) -> None:
    rows = read_typed_rows(save(tmp_path / "rows.jsonl", {**ROW, "boxes": [box]}))
    with pytest.raises(SightlineError, match=says):
        evidence_of_rows([PROBE], rows, lambda image: (1000, 800))


def test_a_pixel_outside_is_clipped_and_a_row_without_box_is_refused(tmp_path: Path) -> None:
    rows = read_typed_rows(save(tmp_path / "rows.jsonl", {**ROW, "boxes": [{**BOX, "x": 921}]}))
    (region,) = evidence_of_rows([PROBE], rows, lambda image: (1000, 800))["docvqa:1"].regions
    assert region == (0.921, 0.525, 1.0, 0.55)
    rows = read_typed_rows(save(tmp_path / "rows.jsonl", {**ROW, "boxes": []}))
    with pytest.raises(SightlineError, match="docvqa:1 is annotated but has no box"):
        evidence_of_rows([PROBE], rows, lambda image: (1000, 800))


def test_a_complete_set_has_nothing_left_to_do(tmp_path: Path) -> None:
    path = save(tmp_path / "rows.jsonl", ROW, {**ROW, "sample_id": "docvqa:2", "status": "uncertain"})
    assert len(read_typed_rows(path)) == 2
    with pytest.raises(SightlineError, match="line 2: docvqa:2 is uncertain, not annotated"):
        read_typed_rows(path, complete=True)
    path = save(path, {**ROW, "boxes": [{**BOX, "label": "answer_value:smoke test"}]})
    with pytest.raises(SightlineError, match="has a box of a trial run"):
        read_typed_rows(path, complete=True)
    with pytest.raises(SightlineError, match=r"line 2: sample_id 'docvqa:1' occurs twice"):
        read_typed_rows(save(path, ROW, ROW))
    with pytest.raises(SightlineError, match="holds no rows"):
        read_typed_rows(save(path))
