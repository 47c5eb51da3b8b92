from __future__ import annotations

import base64
import csv
import io
import json
import math

import pyarrow as pa
import pytest

from sightline.core.text import BEGINNINGS
from sightline.rows.text import csv_header, csv_lines, json_lines

BATCH = pa.record_batch({
    "words": pa.array(['a "quoted", text', None, "two\nlines", " spaced ", "é\u2028"]),
    "masks": pa.array([b"\x00\xff", None, b"", b"a", b"a"]),
    "counts": pa.array([1, None, -3, 0, 7], pa.int32()),
    "shares": pa.array([0.1, None, 1.0, 1e-300, 123456789.125]),
    "times": pa.array([0.1, None, 3.0, 1e30, 2.5], pa.float32()),
    "right": pa.array([True, None, False, True, True]),
    "layers": pa.array([[1, 2], None, [], [3], [4]], pa.list_(pa.int32())),
    "nothing": pa.nulls(5, pa.string()),
})  # fmt: skip


def test_csv_reads_back_to_the_same_values() -> None:
    text = (csv_header(BATCH.schema.names) + csv_lines(BATCH)).decode()
    first, *lines = csv.reader(io.StringIO(text, newline=""))
    assert first == BATCH.schema.names
    for line, row in zip(lines, BATCH.to_pylist(), strict=True):
        cells = dict(zip(first, line, strict=True))
        assert cells["words"] == (row["words"] or "")
        assert cells["masks"] == base64.b64encode(row["masks"] or b"").decode()
        for name in ("counts", "shares"):
            assert cells[name] == ("" if row[name] is None else cells[name])
            assert row[name] is None or float(cells[name]) == row[name]
        assert cells["right"] == ("" if row["right"] is None else str(row["right"]))
        assert cells["layers"] == ("" if row["layers"] is None else json.dumps(row["layers"]))
    assert "1.0" in text, "a whole share is no integer"


def test_json_reads_back_to_the_same_values() -> None:
    lines = [json.loads(line) for line in json_lines(BATCH).decode().split("\n") if line]
    masks = [None if mask is None else base64.b64encode(mask).decode() for mask in BATCH.column("masks").to_pylist()]
    expected = [{**row, "masks": mask} for row, mask in zip(BATCH.to_pylist(), masks, strict=True)]
    for line, row in zip(lines, expected, strict=True):
        times = line.pop("times"), row.pop("times")
        assert line == row
        assert pa.scalar(times[0], pa.float32()) == pa.scalar(times[1], pa.float32())


def test_what_is_no_number_is_no_json() -> None:
    batch = pa.record_batch({"ecr": [math.nan, math.inf, 0.5]})
    assert [json.loads(line)["ecr"] for line in json_lines(batch).decode().split()] == [None, None, 0.5]


@pytest.mark.parametrize("sign", BEGINNINGS)
def test_a_text_that_a_spreadsheet_would_compute_is_made_a_text(sign: str) -> None:
    said = f"{sign}HYPERLINK(1)"
    batch = pa.record_batch({"answer": [said, "plain"], "margin": [-1.0, 2.0]})
    rows = list(csv.reader(io.StringIO(csv_lines(batch).decode(), newline="")))
    assert rows == [[f"'{said}", "-1.0"], ["plain", "2.0"]], "numbers stay numbers"
    assert json.loads(json_lines(batch).decode().split("\n")[0])["answer"] == said


def test_no_rows_are_no_lines() -> None:
    assert csv_lines(BATCH.slice(0, 0)) == json_lines(BATCH.slice(0, 0)) == b""
