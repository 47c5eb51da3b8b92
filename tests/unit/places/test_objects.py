import errno
import json
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from sightline.places import listing
from sightline.places.listing import (
    StoreError,
    open_lines,
    place,
    read_text,
    read_whole,
    refuse_without_creation,
    store_errors,
)
from sightline.places.writing import create_new, make_folder, refuse_unusable_place, write_whole
from sightline.store.shard_files import Mark, read_shard, write_marked
from tests.object_store import Store
from tests.refusals import Refused
from tests.warm_python import run_python

RACE = """
import json, sys
from sightline.places.listing import place
from sightline.places.writing import create_new

folder, who = place(sys.argv[1]), sys.argv[2]
create_new(folder / f"ready-{who}", b"")
while len(folder.fs.ls(folder.path)) < 2:
    pass
print(json.dumps([n for n in range(40) if create_new(folder / f"{n}", who.encode())]))
"""
"""Creates the objects 0 to 39 as soon as a second process is there too, and says which of them it created."""


def test_a_put_and_a_read_are_a_request_each(bucket: str, object_store: Store) -> None:
    target = place(f"{bucket}/a/b.bin")
    make_folder(target.parent)
    write_whole(target, b"first")
    write_whole(target, b"second")
    assert object_store.counted() == {"PUT": 2}
    assert read_whole(target) == b"second"
    assert object_store.counted() == {"GET": 1}


def test_a_column_of_a_shard_is_read_without_the_others(
    bucket: str, object_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, drawn = BytesIO(), Random(5)
    table = pa.table({"image": [str(i) for i in range(20)], "preview": [drawn.randbytes(100_000) for _ in range(20)]})
    write_marked(sink, table.schema, [table], Mark("", "", None, "", ()))
    data = sink.getvalue()
    target = place(f"{bucket}/images.parquet")
    write_whole(target, data)
    object_store.counted()
    assert read_shard(target)[0].read().num_columns == 2
    assert object_store.counted() == {"GET": 1}
    import s3fs.core

    fetched: list[int] = []
    plain: Any = s3fs.core._fetch_range

    def fetching(*words: Any, **more: Any) -> Any:
        fetched.append(words[5] - words[4])
        return plain(*words, **more)

    monkeypatch.setattr("s3fs.core._fetch_range", fetching)
    names = read_shard(target, footer_alone=True)[0].read(["image"]).column("image").to_pylist()
    assert names == [str(i) for i in range(20)]
    counted = object_store.counted()
    assert counted["HEAD"] == 1
    assert counted["GET"] == len(fetched) <= 3
    assert sum(fetched) < len(data) / 10


@pytest.mark.parametrize("where", ["disk", "memory", "s3"])
def test_what_exists_is_not_created_again(where: str, bucket: str, tmp_path: Path) -> None:
    folder: Any = {"disk": tmp_path, "memory": place(f"memory://{uuid4().hex}"), "s3": place(f"{bucket}/claims")}[where]
    assert create_new(folder / "one", b"mine")
    assert not create_new(folder / "one", b"yours")
    assert read_whole(folder / "one") == b"mine"
    assert create_new(folder / "two", b"yours")
    if where != "disk":
        refuse_without_creation(folder)
        assert {Path(name).name for name in folder.fs.find(folder.path)} == {"one", "two"}, "the trial is gone"


def test_of_two_processes_that_create_the_same_object_one_succeeds(bucket: str) -> None:
    folder = f"{bucket}/race"
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda who: run_python(["-c", RACE, folder, who]), ("first", "second")))
    won = [json.loads(process.stdout) for process in done]
    assert sorted([*won[0], *won[1]]) == list(range(40)), "each by exactly one of the two"
    for who, mine in zip((b"first", b"second"), won, strict=True):
        assert all(read_whole(place(f"{folder}/{n}")) == who for n in mine)


def test_a_store_that_cannot_decide_is_asked_again(bucket: str, object_store: Store, refused: Refused) -> None:
    object_store.deny("PUT", containing="/undecided", after=0, code="ConditionalRequestConflict", times=2)
    assert create_new(place(f"{bucket}/undecided"), b"x")
    assert object_store.counted() == {"PUT": 3}
    object_store.ignore_conditions()
    refused("puts objects over one another although asked not to", refuse_without_creation, place(f"{bucket}/claims"))
    object_store.deny("PUT")
    refused("cannot write s3://BUCKET/a", write_whole, place(f"{bucket}/a"), b"x")


def test_a_store_that_only_looks_first_serves_one_process(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    refused("processes cannot share work on https://", create_new, place("https://127.0.0.1:9/claims/one"), b"")
    monkeypatch.setattr("sightline.places.listing.CREATES_ONCE", ())
    folder: Any = place("memory://looks-first")
    assert create_new(folder / "one", b"mine")
    assert not create_new(folder / "one", b"yours")
    assert read_whole(folder / "one") == b"mine"
    refused("looks-first: processes cannot share work on memory://", refuse_without_creation, folder)


def test_lines_are_read_a_part_at_a_time(
    bucket: str, object_store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sightline.places.listing.LINES", 1000)
    text = "".join(f"line {n}\u2028 still the same\n" for n in range(100))
    places = [place(f"{bucket}/lines.txt"), tmp_path / "lines.txt"]
    for where in places:
        write_whole(where, text.encode())
        with open_lines(where) as lines:
            assert list(lines) == re.findall(r"[^\n]*\n", text)
    with open_lines(places[0]) as lines:
        object_store.counted()
        assert next(lines) == "line 0\u2028 still the same\n"
    assert object_store.counted()["GET"] < len(text.encode()) / 1000


def test_a_place_to_write_to_is_tried_without_a_trace(bucket: str, object_store: Store, refused: Refused) -> None:
    refuse_unusable_place(place(f"{bucket}/runs/first"))
    whole: Any = place(bucket)
    assert whole.fs.find(bucket) == []
    for url, line in {
        "s3://no-such-bucket/runs": "the bucket does not exist",
        bucket: "name a folder in the bucket",
        "https://127.0.0.1:9/runs": "https:// does not promise that files appear whole",
    }.items():
        refused(line, refuse_unusable_place, place(url))
    object_store.deny("POST")
    refused("cannot write to s3://BUCKET/runs", refuse_unusable_place, place(f"{bucket}/runs"))


def test_no_store_and_no_credentials_are_one_line(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from s3fs import S3FileSystem

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    S3FileSystem.clear_instance_cache()
    with pytest.raises(StoreError, match=r"^cannot read s3://bucket/x: no credentials \(.*\); set them in the env"):
        read_whole(place("s3://bucket/x"))
    there = {"ENDPOINT_URL": "http://127.0.0.1:9", "MAX_ATTEMPTS": "1"}
    for name, value in {"ACCESS_KEY_ID": "somebody", "SECRET_ACCESS_KEY": "secret", **there}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    S3FileSystem.clear_instance_cache()
    with pytest.raises(StoreError, match=r"^cannot read s3://bucket/x: the store cannot be reached \("):
        read_whole(place("s3://bucket/x"))
    S3FileSystem.clear_instance_cache()


def test_what_is_not_the_stores_fault_stays(tmp_path: Path) -> None:
    with pytest.raises(TypeError), store_errors(place("memory://x"), "read"):
        raise TypeError("a slip in the program")
    with pytest.raises(PermissionError), store_errors(tmp_path, "read"):
        raise PermissionError("about a path nothing changes")
    assert listing.store_reason(OSError(errno.EIO, "Input/output error")) == "Input/output error"


def test_an_object_that_was_replaced_is_not_read_half(bucket: str) -> None:
    target = place(f"{bucket}/a")
    write_whole(target, b"x" * 100)
    with listing.open_ranges(target) as ranges:
        assert ranges.read(10) == b"x" * 10
        write_whole(target, b"y" * 100)
        with pytest.raises(StoreError, match="no longer exists"), store_errors(target, "read"):
            ranges.read(10)


def test_what_need_not_end_or_nobody_wrote_by_hand_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.mknod(tmp_path / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))  # zeros without end
    for name in ("pipe", "device"):
        for read in (listing.open_file, read_text, read_whole, open_lines):
            with pytest.raises(OSError, match="a pipe or device, not a file"):
                read(tmp_path / name)
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="larger than the 1 MiB"):
        read_text(tmp_path / "huge", 1 << 20)
    (tmp_path / "small").write_bytes(b"one\r\ntwo\n")
    assert read_text(tmp_path / "small") == "one\ntwo\n"
