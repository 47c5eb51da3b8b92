"""Regions as JSON lines: boxes mean what is declared of them, and what contradicts itself is refused with its line."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sightline.probes import read_regions, read_textocr, write_regions
from sightline.probes.annotations import load_regions
from tests.refusals import Refused
from tests.unit.probes.conftest import Save


def record(box: Any, **more: Any) -> dict[str, Any]:
    words = [{"text": "Total", "box": box}]
    return {"image_id": "r", "image": "r.jpg", "width": 100, "height": 200, "words": words} | more


@pytest.mark.parametrize(
    ("box", "order", "units"),
    [
        ([10, 20, 30, 40], "xywh", "pixels"),
        ([10, 20, 40, 60], "xyxy", "pixels"),
        ([0.1, 0.1, 0.3, 0.2], "xywh", "normalised"),
        ([0.1, 0.1, 0.4, 0.3], "xyxy", "normalised"),
    ],
)
def test_declared_formats_mean_what_they_say(save: Save, box: list[float], order: str, units: str) -> None:
    declared = read_regions(save(record(box)), order=order, units=units)
    assert declared.records[0].words[0].box == pytest.approx((0.1, 0.1, 0.4, 0.3))
    header = {"sightline_regions": 1, "boxes": order, "units": units}
    assert read_regions(save(header, record(box))).records == declared.records
    assert read_regions(save(record(box, boxes=order, units=units))).records == declared.records


PIXELS = {"sightline_regions": 1, "boxes": "xyxy", "units": "pixels"}
SMALL = [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        ([record(SMALL)], {}, "line 1: box order is not declared"),
        ([record(SMALL)], {"order": "xyxy"}, "box units are not declared"),
        ([PIXELS, record(SMALL)], {"order": "xywh"}, "the header declares boxes 'xyxy', the command line 'xywh'"),
        ([PIXELS, record([0.1, 0.1, 0.4, 0.3])], {}, "declared as pixels, but no coordinate in the file exceeds 1"),
        ([PIXELS, record(SMALL), record(SMALL)], {}, "line 3: image id 'r' was already on line 2"),
        ([PIXELS, record([10, 20, 300, 40], units="normalised")], {}, "box [10.0, 20.0, 300.0, 40.0] lies far outside"),
        ([PIXELS, record([40, 20, 10, 60])], {}, "box [40.0, 20.0, 10.0, 60.0] has x2 < x1"),
        ([PIXELS, record([40, 20, -10, 60], boxes="xywh")], {}, "box [40.0, 20.0, -10.0, 60.0] has a negative width"),
        ([PIXELS, record([90, 20, 500, 60], boxes="xywh")], {}, "box [90.0, 20.0, 500.0, 60.0] lies far outside"),
        ([PIXELS, record([1, 2, 3])], {}, "[1, 2, 3]"),
        ([PIXELS, record([1, 2, 3, "4"])], {}, "[1, 2, 3, '4']"),
        ([PIXELS, record(SMALL, words="Total")], {}, "line 2: 'words' must be a list"),
        ([PIXELS, record(SMALL, image="../r.jpg")], {}, "leaves the image root"),
        ([PIXELS, record(SMALL, image_id="")], {}, "line 2: image_id '' is empty"),
        ([PIXELS, record(SMALL, wordz=[])], {}, "line 2: unknown key 'wordz'"),
        ([PIXELS, [1]], {}, "line 2: expected a JSON object"),
    ],
)
def test_what_contradicts_itself_is_refused_with_its_line(
    save: Save, rows: Any, options: Any, says: str, refused: Refused
) -> None:
    refused(says, read_regions, save(*rows), **options)


def test_boxes_are_clipped_and_images_tell_their_sizes(save: Save, tmp_path: Path, refused: Refused) -> None:
    ingest = read_regions(save(PIXELS, record([-5, 150, 60, 210]), record([10, 20, 10, 60], image_id="s")))
    (found,) = ingest.records
    assert found.words[0].box == (0.0, 0.75, 0.6, 1.0)
    assert (ingest.counts.clipped_boxes, ingest.counts.dropped_no_area) == (1, 1)
    Image.new("RGB", (50, 100)).save(tmp_path / "r.jpg")
    path = save(record([10, 20, 25, 50], width=None, height=None))
    refused("need the image's width and height", load_regions, path, order="xyxy", units="pixels")
    ingest = load_regions(path, order="xyxy", units="pixels", images=tmp_path)
    assert ingest.records[0].words[0].box == (0.2, 0.2, 0.5, 0.5)


@pytest.mark.parametrize("real", [False, True])
def test_own_layout_round_trip(request: pytest.FixtureRequest, data: Path, tmp_path: Path, real: bool) -> None:
    mini = data / "mini_textocr" / "TextOCR_mini_val.json"
    records = read_textocr(request.getfixturevalue("receipts") / "receipts.json" if real else mini).records
    write_regions(tmp_path / "regions.jsonl.gz", records)
    back = read_regions(tmp_path / "regions.jsonl.gz").records
    assert records
    assert [(r.image_id, r.image, r.words, r.width, r.height) for r in back] == [
        (r.image_id, r.image, r.words, r.width, r.height) for r in records
    ]
