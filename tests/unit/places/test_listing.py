from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sightline.errors import SightlineError
from sightline.places import Listing, Place, place
from sightline.store import RunFolder
from tests.object_store import Store

FILES = [
    "run.json",
    "rows/full/00000.parquet",
    "rows/full/00001.parquet",
    "rows/half/00001.parquet",
    "images/00001.x.p",
]


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    root = tmp_path / "run" if request.param == "disk" else place(f"memory://{uuid4().hex}/run")
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    return root


def test_a_store_is_listed_as_a_disk_is(folder: Place) -> None:
    files = Listing(folder)
    assert all(files.has(folder / name) for name in FILES)
    assert not files.has(folder / "rows" / "full" / "00002.parquet")
    assert not files.has(folder / "rows" / "full"), "a folder is no file"
    for pattern, names in {
        "rows/*/00001.parquet": ["rows/full/00001.parquet", "rows/half/00001.parquet"],
        "rows/full/*.parquet": ["rows/full/00000.parquet", "rows/full/00001.parquet"],
        "rows/none/*.parquet": [],
        "images/00001.*": ["images/00001.x.p"],
        "*.json": ["run.json"],
    }.items():
        assert files.matching(pattern) == [folder / name for name in names]


def test_what_is_written_and_removed_is_known(folder: Place) -> None:
    files = Listing(folder)
    assert files.has(folder / "run.json")
    new = folder / "rows" / "full" / "00007.parquet"
    new.write_bytes(b"x")
    files.added(new)
    assert files.has(new)
    (folder / "run.json").unlink()
    files.removed(folder / "run.json")
    assert not files.has(folder / "run.json")


def test_what_others_write_is_known_after_a_refresh(folder: Place) -> None:
    files = Listing(folder)
    assert len(files.matching("rows/full/*")) == 2
    (folder / "rows" / "full" / "00009.parquet").write_bytes(b"x")
    files.refresh()
    assert len(files.matching("rows/full/*")) == 3


def test_ten_thousand_shards_are_no_ten_thousand_requests(bucket: str, object_store: Store) -> None:
    """A listing gives a thousand objects: 1,200 are two requests, whatever is asked of them."""
    folder = RunFolder(f"{bucket}/runs/large")
    root: Any = folder.path
    file: Any = folder.rows_file("full", 0)
    root.fs.pipe({f"{file.parent.path}/{shard:05d}.parquet": b"x" for shard in range(1200)})
    object_store.counted()
    assert [folder.has_rows("full", shard) for shard in range(10_000)] == [True] * 1200 + [False] * 8800
    assert not folder.finished_shards("full").issuperset(range(1201))
    assert len(folder.files_of_rows("full")) == 1200
    assert object_store.counted() == {"LIST": 2}


def test_a_bucket_that_is_not_there_is_one_line(bucket: str) -> None:
    with pytest.raises(SightlineError, match=r"^cannot list s3://no-such-bucket/x: the bucket does not exist$"):
        Listing(place("s3://no-such-bucket/x")).matching("*")


def test_no_permission_is_one_line(bucket: str, object_store: Store) -> None:
    object_store.deny("LIST")
    with pytest.raises(SightlineError, match=r"^cannot list s3://.*/x: no permission \(Access Denied\)$"):
        Listing(place(f"{bucket}/x")).matching("*")


def test_a_name_that_no_folder_has_and_a_link_in_a_circle_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    for folder in (tmp_path / ("a" * 300), tmp_path / "circle"):
        assert Listing(folder).within("rows") == []
        assert not Listing(folder).has(folder / "run.json")
