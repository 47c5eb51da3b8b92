from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sightline.errors import SightlineError
from sightline.probes import read_regions, read_textocr, write_regions
from sightline.probes.annotations import detect_format, load_regions


def record(box: Any, **more: Any) -> dict[str, Any]:
    return {
        "image_id": "r",
        "image": "r.jpg",
        "width": 100,
        "height": 200,
        "words": [{"text": "Total", "box": box}],
    } | more


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def save(*rows: Any) -> Path:
        path = tmp_path / "regions.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return save


@pytest.mark.parametrize(
    ("box", "order", "units"),
    [
        ([10, 20, 30, 40], "xywh", "pixels"),
        ([10, 20, 40, 60], "xyxy", "pixels"),
        ([0.1, 0.1, 0.3, 0.2], "xywh", "normalised"),
        ([0.1, 0.1, 0.4, 0.3], "xyxy", "normalised"),
    ],
)
def test_declared_formats_mean_what_they_say(write: Any, box: list[float], order: str, units: str) -> None:
    expected = pytest.approx((0.1, 0.1, 0.4, 0.3))
    declared = read_regions(write(record(box)), order=order, units=units)
    assert declared.records[0].words[0].box == expected
    header = {"sightline_regions": 1, "boxes": order, "units": units}
    assert read_regions(write(header, record(box))).records == declared.records
    assert read_regions(write(record(box, boxes=order, units=units))).records == declared.records


def test_nothing_declared_is_an_error(write: Any) -> None:
    with pytest.raises(SightlineError, match=r"line 1: box order None is not declared .*--boxes"):
        read_regions(write(record([1, 2, 3, 4])))
    with pytest.raises(SightlineError, match=r"units None are not declared .*--units"):
        read_regions(write(record([1, 2, 3, 4])), order="xyxy")


@pytest.mark.parametrize(
    ("box", "order", "units", "reason"),
    [
        ([10, 20, 300, 40], "xyxy", "normalised", "far outside"),
        ([40, 20, 10, 60], "xyxy", "pixels", "x2 < x1"),
        ([40, 20, -10, 60], "xywh", "pixels", "negative width"),
        ([90, 20, 500, 60], "xywh", "pixels", "far outside"),
    ],
)
def test_contradicted_declarations_name_line_and_box(
    write: Any, box: list[float], order: str, units: str, reason: str
) -> None:
    with pytest.raises(SightlineError, match=rf"line 2: word 0: box \[.*\] .*{reason}.*not {order} in {units}"):
        read_regions(write({"sightline_regions": 1, "boxes": order, "units": units}, record(box)))


def test_pixels_that_are_all_fractions_are_refused(write: Any) -> None:
    with pytest.raises(SightlineError, match="declared as pixels, but no coordinate in the file exceeds 1"):
        read_regions(write(record([0.1, 0.1, 0.4, 0.3])), order="xyxy", units="pixels")


def test_header_and_command_line_must_agree(write: Any) -> None:
    path = write({"sightline_regions": 1, "boxes": "xyxy", "units": "pixels"}, record([1, 2, 30, 40]))
    with pytest.raises(SightlineError, match="the header declares boxes 'xyxy', the command line 'xywh'"):
        read_regions(path, order="xywh")


def test_boxes_slightly_outside_are_clipped_and_counted(write: Any) -> None:
    ingest = read_regions(write(record([-5, 150, 60, 210])), order="xyxy", units="pixels")
    assert ingest.records[0].words[0].box == (0.0, 0.75, 0.6, 1.0)
    assert ingest.counts.clipped_boxes == 1


def test_zero_area_is_dropped_and_counted(write: Any) -> None:
    ingest = read_regions(write(record([10, 20, 10, 60])), order="xyxy", units="pixels")
    assert ingest.records == ()
    assert ingest.counts.dropped_no_area == 1


def test_sizes_come_from_the_images_when_records_do_not_say(write: Any, tmp_path: Path) -> None:
    Image.new("RGB", (50, 100)).save(tmp_path / "r.jpg")
    path = write(record([10, 20, 25, 50], width=None, height=None))
    with pytest.raises(SightlineError, match="need the image's width and height"):
        load_regions(path, order="xyxy", units="pixels")
    ingest = load_regions(path, order="xyxy", units="pixels", images=tmp_path)
    assert ingest.records[0].words[0].box == (0.2, 0.2, 0.5, 0.5)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (record([1, 2, 3]), "not four finite numbers"),
        (record([1, 2, 3, "4"]), "not four finite numbers"),
        (record([1, 2, 3, 4], words="Total"), "'words' must be a list"),
        (record([1, 2, 3, 4], image="../r.jpg"), "leaves the image root"),
        (record([1, 2, 3, 4], image_id=""), "image_id '' is empty"),
        (record([1, 2, 3, 4], wordz=[]), "unknown key 'wordz'"),
        ([1], "expected a JSON object"),
    ],
)
def test_malformed_records_name_their_line(write: Any, row: Any, message: str) -> None:
    with pytest.raises(SightlineError, match=rf"regions\.jsonl line 1: .*{message}"):
        read_regions(write(row), order="xyxy", units="pixels")


def test_an_image_id_may_occur_once(write: Any) -> None:
    with pytest.raises(SightlineError, match="line 2: image id 'r' was already on line 1"):
        read_regions(write(record([1, 2, 30, 40]), record([1, 2, 30, 40])), order="xyxy", units="pixels")


def test_own_layout_round_trip(data: Path, tmp_path: Path) -> None:
    check_round_trip(data / "mini_textocr" / "TextOCR_mini_val.json", tmp_path)


def test_own_layout_round_trip_of_real_receipts(receipts: Path, tmp_path: Path) -> None:
    check_round_trip(receipts / "receipts.json", tmp_path)


def check_round_trip(annotations: Path, folder: Path) -> None:
    records = read_textocr(annotations).records
    assert records
    write_regions(folder / "regions.jsonl.gz", records)
    back = read_regions(folder / "regions.jsonl.gz").records
    assert [(r.image_id, r.image, r.words, r.width, r.height) for r in back] == [
        (r.image_id, r.image, r.words, r.width, r.height) for r in records
    ]


def test_formats_are_told_apart(data: Path) -> None:
    assert detect_format(data / "mini_textocr" / "TextOCR_mini_val.json") == "textocr"
    assert detect_format(data / "golden_e2e" / "inputs" / "regions.jsonl.gz") == "regions"
    with pytest.raises(SightlineError, match="TextOCR boxes are xywh in pixels by definition"):
        load_regions(data / "mini_textocr" / "TextOCR_mini_val.json", order="xyxy")
