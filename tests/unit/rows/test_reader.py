"""Rows read from their files: in batches, as a frame of few bytes a value, by number, as lines of text."""

import base64
import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sightline.core.row import row_schema
from sightline.core.text import BEGINNINGS
from sightline.rows.reader import MERGED, count_rows, rows_at
from sightline.rows.run import load_run
from sightline.rows.text import csv_header, csv_lines, json_lines
from sightline.statistics import arm_rows
from sightline.store.folder import RunFolder
from sightline.store.shard_files import pieces
from sightline.store.verify import compact_run
from tests.changed_run import rewritten
from tests.refusals import Refused
from tests.runs.yes_no import EDITED, changed, make_run


def scanned(path: Path, *asked: object, **settings: object) -> pa.Table:
    return pa.Table.from_batches(load_run(path).scan(*asked, **settings))  # type: ignore[arg-type]


def test_batches_are_the_rows_in_order_compacted_or_not(finished: Path, run_copy: Path) -> None:
    run = load_run(finished)
    for rows in (1, 7, 64, 10_000):
        batches = list(run.scan(rows=rows))
        assert pa.Table.from_batches(batches).equals(run.rows.combine_chunks())
        assert all(batch.num_rows == rows for batch in batches[:-1])
    compact_run(run_copy)
    assert scanned(run_copy).equals(run.rows.combine_chunks())
    assert list(run.each_probe()) == run.probes
    assert len(run.probes) == 200


def test_columns_arms_and_an_expression_choose_rows(finished: Path, refused: Refused) -> None:
    whole = load_run(finished).rows
    where = pc.field("correct") & (pc.field("ecr") < 0.5)
    some = scanned(finished, ["ecr", "probe_id"], arms=["grid:0.3", "full"], where=where)
    own = pa.concat_tables([whole.filter(pc.field("arm") == arm) for arm in ("grid:0.3", "full")])
    expected = own.filter(where).select(["ecr", "probe_id"])
    assert some.num_rows > 0
    assert some.equals(expected.combine_chunks())
    refused("rows have no column 'legibilty'; did you mean 'legibility'", scanned, finished, ["legibilty"])
    refused("no arm 'target:0.4'; did you mean 'target:0.3'", scanned, finished, arms=["target:0.4"])


@pytest.mark.parametrize("arms", [("full", "target:0.3", "random:0.3"), ("target:0.3",), ("full",)])
def test_columns_that_rows_got_later_are_null_and_in_their_places(tmp_path: Path, arms: tuple[str, ...]) -> None:
    folder = make_run(tmp_path / "run", images=6, arms=("full", "target:0.3", "random:0.3"))
    for arm in arms:
        for file in RunFolder(folder).files_of_rows(arm):
            rewritten(file.path, lambda table: table.drop_columns(["visible", "legibility"]))
    run = load_run(folder)
    frame, compact = run.frame(), run.compact_frame(lambda name: True)
    assert [name for name in frame.columns if name in row_schema().names] == row_schema().names
    for name in ("visible", "legibility"):
        assert (frame[name].isna() == frame["arm"].isin(arms)).all()
    assert scanned(folder).equals(run.rows.combine_chunks())
    assert compact["legibility"].isna().tolist() == frame["legibility"].isna().tolist()
    assert run.columns == run.rows.column_names


def test_a_column_that_some_files_have_lost_is_one_line(run_copy: Path, refused: Refused) -> None:
    """Files whose checksum holds, with one column fewer than the first has."""
    folder = RunFolder(run_copy)
    for shard in (3, 4):
        path = folder.rows_file("grid:0.3", shard)
        table = load_run(run_copy).owner("grid:0.3").read(pieces(folder.files_of_rows("grid:0.3"))[shard])
        path.unlink()
        folder.write_row_table("grid:0.3", shard, table.drop_columns(["margin"]))
    refused("parquet is damaged: it has no column 'margin'", scanned, run_copy)


def test_a_compact_frame_has_the_values_of_the_table_in_few_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What rows may lack: text, a whole number, true or false, a float.
    forget_some = changed(probe="img0003:yes", regime=None, sequence_full=None, all_half=None, legibility=None)
    run = load_run(make_run(tmp_path / "run", images=12, arms=EDITED, edit_row=forget_some))
    for pending in (7, 1 << 21):
        monkeypatch.setattr(arm_rows, "PENDING", pending)
        found = run.compact_frame(lambda name: True)
        assert len(found) == count_rows(run) == run.rows.num_rows
        for name in found.columns.drop(MERGED):
            values = [None if pd.isna(value) else value for value in found[name]]
            expected = run.rows.column(name).to_pylist()
            assert values == [None if value is None or value != value else value for value in expected], name
        assert found[MERGED].tolist() == [mask is not None for mask in run.rows.column("lineage_mask").to_pylist()]
    assert "object" not in {str(dtype) for dtype in found.dtypes}
    assert found["label"].cat.codes.dtype == np.int8
    assert found["vision_ms"].dtype == np.float32
    for name in ("probe_id", "arm", "image_key"):
        assert found[name].cat.categories.is_monotonic_increasing
    assert not {"kept_mask", "k_layers"} & set(found)
    assert list(run.compact_frame({"ecr", "arm"}.__contains__).columns) == ["arm", "ecr", MERGED]


def test_rows_are_found_by_their_numbers(small_run: Path) -> None:
    run = load_run(small_run)
    places = [run.rows.num_rows - 1, 0, 7, 7]
    columns = ["probe_id", "arm", "kept_mask"]
    assert rows_at(run, places, columns).equals(run.rows.take(places).select(columns))
    assert rows_at(run, [], ["arm"]).num_rows == 0


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


def test_json_reads_back_to_the_same_values_and_has_no_numbers_that_are_none() -> None:
    objects = [json.loads(line) for line in json_lines(BATCH).decode().split("\n") if line]
    masks = [None if mask is None else base64.b64encode(mask).decode() for mask in BATCH.column("masks").to_pylist()]
    expected = [{**row, "masks": mask} for row, mask in zip(BATCH.to_pylist(), masks, strict=True)]
    for found, row in zip(objects, expected, strict=True):
        times = found.pop("times"), row.pop("times")
        assert found == row
        assert pa.scalar(times[0], pa.float32()) == pa.scalar(times[1], pa.float32())
    batch = pa.record_batch({"ecr": [math.nan, math.inf, 0.5]})
    assert [json.loads(line)["ecr"] for line in json_lines(batch).decode().split()] == [None, None, 0.5]


def test_of_no_rows_there_is_no_line() -> None:
    assert csv_lines(BATCH.slice(0, 0)) == json_lines(BATCH.slice(0, 0)) == b""


def test_no_text_is_a_formula_to_a_spreadsheet() -> None:
    for said in (f"{sign}HYPERLINK(1)" for sign in BEGINNINGS):
        batch = pa.record_batch({"answer": [said, "plain"], "margin": [-1.0, 2.0]})
        rows = list(csv.reader(io.StringIO(csv_lines(batch).decode(), newline="")))
        assert rows == [[f"'{said}", "-1.0"], ["plain", "2.0"]], "a spreadsheet would compute it; numbers stay numbers"
        assert json.loads(json_lines(batch).decode().split("\n")[0])["answer"] == said
