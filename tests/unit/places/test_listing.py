"""Paths and URLs: how they are written, listed and joined."""

import pickle
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sightline.places.listing import Listing, Place, is_remote, place
from sightline.store.folder import RunFolder
from tests.object_store import Store
from tests.refusals import Refused

FILES = [
    "run.json", "rows/full/00000.parquet", "rows/full/00001.parquet", "rows/half/00001.parquet", "images/00001.x.p",
]  # fmt: skip


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


def test_what_is_written_is_known_at_once_and_what_others_write_after_a_refresh(folder: Place) -> None:
    files = Listing(folder)
    assert len(files.matching("rows/full/*")) == 2  # of a store, what is remembered from here on
    new = folder / "rows" / "full" / "00007.parquet"
    new.write_bytes(b"x")
    files.added(new)
    assert files.has(new)
    (folder / "run.json").unlink()
    files.removed(folder / "run.json")
    assert not files.has(folder / "run.json")
    (folder / "rows" / "full" / "00009.parquet").write_bytes(b"x")
    files.refresh()
    assert len(files.matching("rows/full/*")) == 4


def test_ten_thousand_shards_are_no_ten_thousand_requests(bucket: str, object_store: Store) -> None:
    """A listing gives a thousand objects: 1,010 are two requests, whatever is asked of them."""
    folder = RunFolder(f"{bucket}/runs/large")
    root: Any = folder.path
    file: Any = folder.rows_file("full", 0)
    root.fs.pipe({f"{file.parent.path}/{shard:05d}.parquet": b"x" for shard in range(1010)})
    object_store.counted()
    assert [folder.has_rows("full", shard) for shard in range(10_000)] == [True] * 1010 + [False] * 8990
    assert not folder.finished_shards("full").issuperset(range(1011))
    assert len(folder.files_of_rows("full")) == 1010
    assert object_store.counted() == {"LIST": 2}


def test_no_bucket_no_permission_and_odd_names(
    bucket: str, object_store: Store, tmp_path: Path, refused: Refused
) -> None:
    refused("the bucket does not exist", Listing(place("s3://no-such-bucket/x")).matching, "*")
    object_store.deny("LIST")
    refused("no permission", Listing(place(f"{bucket}/x")).matching, "*")
    (tmp_path / "circle").symlink_to("circle")
    for folder in (tmp_path / ("a" * 300), tmp_path / "circle"):
        assert Listing(folder).within("rows") == []
        assert not Listing(folder).has(folder / "run.json")


def test_a_path_is_a_path_as_it_always_was() -> None:
    for text in ("runs/first", "/data/images", "C:/data", "s3", "a b/c:d", "", ".", "x:y//z"):
        assert place(text) == place(Path(text)) == Path(text)
        assert not is_remote(place(text))


@pytest.mark.parametrize("url", ["s3://bucket/runs/first", "memory://runs/first"])
def test_a_url_keeps_its_slashes_and_joins_like_a_path(url: str) -> None:
    found = place(url)
    assert is_remote(found)
    assert str(found) == str(place(f"{url}/")) == str(pickle.loads(pickle.dumps(found))) == url
    assert str(found / "rows" / "a.parquet") == f"{url}/rows/a.parquet"
    assert (found.name, found.parent.name) == ("first", "runs")
    assert place(found) is found


def test_what_cannot_be_a_place_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    for url, says in {
        "nowhere://b/x": "nobody knows the scheme nowhere://",
        "https://me:secret@host/x": "a URL may not hold a password",
        Path("s3://bucket/x"): "s3:/bucket/x: Path breaks URLs",
    }.items():
        refused(says, place, url)
    monkeypatch.chdir(tmp_path)
    Path("s3:").mkdir()
    assert place(Path("s3:/x")) == Path("s3:/x"), "a folder that is called so"
    assert place("file:///data/my%20images") == Path("/data/my images")
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    refused("gs://bucket/x: gs needs a package that is not installed:", place, "gs://bucket/x")
    monkeypatch.setitem(sys.modules, "upath", None)
    refused('pip install "sightline[remote]"', place, "s3://bucket/x")
    assert place("runs") == Path("runs"), "paths need no package"
