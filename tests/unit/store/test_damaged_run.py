"""Run folders that no writer leaves: refused in one line by file, line or column. Each case was once a traceback."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sightline import SightlineError, load_run
from sightline.places.writing import make_folder, write_whole
from sightline.probes.data_rows import read_objects
from sightline.rows.source import read_source
from sightline.store.folder import RunFolder
from tests.changed_run import edited, rewritten
from tests.refusals import Refused


def read_all(run: Path) -> None:
    """As reports read it, and all tables and masks."""
    read_source([run])
    opened = load_run(run)
    opened.frame()
    for arm in opened.arms:
        opened.masks(arm)


def is_refused(read: Callable[[], object], *words: str) -> None:
    with pytest.raises(SightlineError) as caught:
        read()
    for word in words:
        assert word in str(caught.value)


def test_the_good_one_is_read_and_what_it_cannot_do_without_is_named(small_copy: Path, refused: Refused) -> None:
    assert len(read_source([small_copy]).frame) == 12
    (small_copy / "probes.jsonl").unlink()
    refused("probes.jsonl cannot be read", load_run(small_copy).frame)
    edited(small_copy, shards=None)
    is_refused(partial(read_all, small_copy), "no finished shard")


@pytest.mark.parametrize(("content", "words"), [
    (b"[]", "no JSON object"), (b"[" * 3000, "not valid JSON"), (b"\xff\xfe", "not UTF-8"), (b"", "not valid JSON"),
    ({"arms": None}, "'arms'"), ({"arms": ["full", 3]}, "'arms'"), ({"arms": ["full", "full"]}, "twice"),
    ({"shards": "2"}, "'shards'"), ({"shards": 2**63}, "'shards'"), ({"shards": -1}, "'shards'"),
    ({"shards": True}, "'shards'"), ({"bad_images": ["a.jpg"]}, "'bad_images'"),
    ({"bad_images": {"a.jpg": {}}}, "a.jpg"), ({"set_aside": 5}, "'set_aside'"), ({"versions": "2"}, "'versions'"),
    ({"probe_digest": {}}, "'probe_digest'"), ({"schema": []}, "schema"), ({"images": {}}, "'images'"),
    ({"images": ["a"]}, "'images'"),
])  # fmt: skip
def test_a_damaged_manifest(small_copy: Path, content: Any, words: str) -> None:
    file = small_copy / "run.json"
    if isinstance(content, dict):
        content = json.dumps({**json.loads(file.read_text(encoding="utf-8")), **content}).encode()
    file.write_bytes(content)
    is_refused(partial(read_all, small_copy), str(small_copy), words)


@pytest.mark.parametrize(("line", "words"), [
    ("{", "line 2"), ("[" * 3000, "line 2"), ("[]", "no JSON object"), ('{"id": 3}', "line 2"),
    ({"regions": [[0.5, 0.5, 0.1, 0.1]]}, "regions[0]"), ({"regions": [["}", 0, 1, 1]]}, "regions[0]"),
    ({"regions": [[[0.1, 0.2, 0.3, 0.4]]]}, "regions[0]"), ({"id": None}, "id is missing"),
])  # fmt: skip
def test_a_damaged_probe(small_copy: Path, line: Any, words: str) -> None:
    file = small_copy / "probes.jsonl"
    header, first, *rest = file.read_text(encoding="utf-8").split("\n")
    if isinstance(line, dict):
        line = json.dumps({**json.loads(first), **line})
    file.write_text("\n".join([header, line, *rest]), encoding="utf-8")
    is_refused(load_run(small_copy).frame, "probes.jsonl line 2 is damaged", words)


def with_values(name: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    """The table with one odd value in a column, or with a column of another type."""

    def change(table: pa.Table) -> pa.Table:
        place = table.column_names.index(name)
        if isinstance(value, pa.Array):
            return table.set_column(place, name, value.take(pa.array([0] * len(table))))
        values = [value, *table.column(place).to_pylist()[1:]]
        return table.set_column(place, name, pa.array(values, table.schema.field(name).type))

    return change


@pytest.mark.parametrize(("kind", "change", "words"), [
    ("rows", lambda table: table.drop_columns(["k_tokens"]), "'k_tokens'"),
    ("rows", lambda table: table.drop_columns(["arm", "plain_arm"]), "damaged"),
    ("rows", lambda table: table.rename_columns(["x", *table.column_names[1:]]), "'arm'"),
    ("rows", lambda table: pa.concat_tables([table, table]), "twice"),
    ("rows", with_values("arguments", pa.array([[1.5]])), "'arguments'"),
    ("rows", with_values("margin", pa.array(["x"])), "'margin'"),
    ("rows", with_values("arguments", "{"), "'arguments'"),
    ("rows", with_values("arguments", "[" * 3000), "'arguments'"),
    ("rows", with_values("arm", "grid:0.3"), "another arm"),
    ("rows", with_values("probe_id", None), "'probe_id'"),
    ("rows", with_values("kept_mask", b"\xff" * 1000), "'kept_mask'"),
    ("rows", with_values("kept_mask", b""), "bits"),
    ("rows", with_values("ecr", 1.5), "'ecr'"),
    ("rows", with_values("ecr", float("nan")), "'ecr'"),
    ("rows", with_values("n_tokens", -1), "'n_tokens'"),
    ("rows", with_values("correct", None), "'correct'"),
    ("images", with_values("cells", b"x" * 7), "'cells'"),
    ("images", with_values("cells", b""), "'cells'"),
    ("images", with_values("layout", "{}"), "'layout'"),
    ("images", with_values("width", 0), "no pixels"),
    ("images", with_values("image_key", "other.jpg@orig"), "no image record"),
])  # fmt: skip
def test_damaged_rows_and_images(
    small_copy: Path, kind: str, change: Callable[[pa.Table], pa.Table], words: str
) -> None:
    rows = RunFolder(small_copy).rows_file("target:0.3", 0)
    rewritten(rows if kind == "rows" else small_copy / "images" / "00000.parquet", change)
    is_refused(partial(read_all, small_copy), words)


def test_a_parquet_file_of_garbage_is_one_line(small_copy: Path) -> None:
    file = RunFolder(small_copy).rows_file("full", 0)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2] + b"\xff" * 60)
    is_refused(partial(read_all, small_copy), str(file))


def test_writing_whole_files_follows_no_link_that_lies_in_wait(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / f".run.json.{os.getpid()}.tmp").symlink_to(precious)
    write_whole(tmp_path / "run.json", b"{}")
    assert precious.read_text() == "mine"
    assert (tmp_path / "run.json").read_bytes() == b"{}"


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_path_that_no_file_system_takes_is_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for read in (
        lambda: make_folder(path / "run"),
        lambda: list(read_objects(path)),
        lambda: RunFolder(path).refuse_foreign(),
        lambda: RunFolder(path).manifest(),
        lambda: load_run(path),
    ):
        is_refused(read)
