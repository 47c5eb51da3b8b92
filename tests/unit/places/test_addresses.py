from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from sightline.errors import SightlineError
from sightline.places import is_remote, place


@pytest.mark.parametrize("text", ["runs/first", "/data/images", "C:/data", "s3", "a b/c:d", "", ".", "x:y//z"])
def test_a_path_is_a_path_as_it_always_was(text: str) -> None:
    assert place(text) == Path(text)
    assert place(Path(text)) == Path(text)
    assert not is_remote(place(text))


def test_a_file_url_is_a_path() -> None:
    assert place("file:///data/my%20images") == Path("/data/my images")


@pytest.mark.parametrize("url", ["s3://bucket/runs/first", "memory://runs/first"])
def test_a_url_keeps_its_slashes_and_joins_like_a_path(url: str) -> None:
    found = place(url)
    assert is_remote(found)
    assert str(found) == url
    assert str(found / "rows" / "a.parquet") == f"{url}/rows/a.parquet"
    assert (found.name, found.parent.name) == ("first", "runs")
    assert place(found) is found
    assert str(place(f"{url}/")) == url
    assert str(pickle.loads(pickle.dumps(found))) == url


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("nowhere://b/x", "nowhere://b/x: nobody knows the scheme nowhere://; write a path, or s3://BUCKET/..."),
        (
            "https://me:secret@host/x",
            "https://me:...@host/x: a URL may not hold a password, which runs would record; set it elsewhere",
        ),
    ],
)
def test_what_cannot_be_a_place_is_refused_in_one_line(url: str, line: str) -> None:
    with pytest.raises(SightlineError) as refused:
        place(url)
    assert str(refused.value) == line


def test_a_url_that_went_through_path_is_refused() -> None:
    with pytest.raises(SightlineError, match=r"s3:/bucket/x: Path breaks URLs; give s3://... as text"):
        place(Path("s3://bucket/x"))


def test_a_folder_that_is_called_so_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s3:").mkdir()
    assert place(Path("s3:/x")) == Path("s3:/x")


def test_without_the_extra_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "upath", None)
    with pytest.raises(SightlineError) as refused:
        place("s3://bucket/x")
    assert 'pip install "sightline[remote]"' in str(refused.value)
    assert place("runs") == Path("runs"), "paths need no package"


def test_without_the_package_of_a_store_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(SightlineError, match=r"^gs://bucket/x: gs needs a package that is not installed: .*gcsfs"):
        place("gs://bucket/x")
