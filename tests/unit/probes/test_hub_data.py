"""Data sets of the hub by their id: which files are meant, fetched through a stub; one line where there is no way."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from sightline.errors import SightlineError
from sightline.probes.hub_data import hub_files, is_hub_data

DOCVQA = [
    "README.md",
    "DocVQA/test-00000-of-00001.parquet",
    "DocVQA/validation-00001-of-00002.parquet",
    "DocVQA/validation-00000-of-00002.parquet",
    "InfographicVQA/validation-00000-of-00001.parquet",
]
DOCVQA_VALIDATION = ["DocVQA/validation-00000-of-00002.parquet", "DocVQA/validation-00001-of-00002.parquet"]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """A hub that holds ``org/all``; what is fetched from it."""
    fetched: list[dict[str, Any]] = []

    def listed(name: str, *, repo_type: str, revision: str | None) -> list[str]:
        assert repo_type == "dataset"
        return {"org/all": DOCVQA, "org/one": ["data/train-00000-of-00001.parquet"], "org/none": ["a.zip"]}[name]

    def snapshot(name: str, **how: Any) -> str:
        fetched.append({"name": name, **how})
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: SimpleNamespace(list_repo_files=listed))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    return fetched


@pytest.mark.parametrize(
    ("asked", "files", "revision"),
    [
        ("org/all:DocVQA/validation", DOCVQA_VALIDATION, None),
        ("org/all@abc:DocVQA/test", ["DocVQA/test-00000-of-00001.parquet"], "abc"),
        ("org/one", ["data/train-00000-of-00001.parquet"], None),
    ],
)
def test_the_shards_of_one_part_are_fetched_in_order(
    asked: str, files: list[str], revision: str | None, hub: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert is_hub_data(Path(asked))
    assert hub_files(Path(asked)) == [tmp_path / file for file in files]
    (fetched,) = hub
    assert (fetched["allow_patterns"], fetched["revision"], fetched["repo_type"]) == (files, revision, "dataset")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("org/all", r"several parts: DocVQA/test, DocVQA/validation, InfographicVQA/validation; name one, org/all:Doc"),
        ("org/all:nothing", r"no part nothing; choose from DocVQA/test"),
        ("org/none", r"no parquet files"),
        ("org/unknown", r"cannot be fetched \(KeyError\): that takes huggingface_hub and a network"),
    ],
)
def test_what_cannot_be_had_is_said_in_a_line(asked: str, words: str, hub: list[dict[str, Any]]) -> None:
    with pytest.raises(SightlineError, match=words) as refused:
        hub_files(Path(asked))
    assert "\n" not in str(refused.value)
    assert not hub


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("lmms-lab/DocVQA", True),
        ("data/typo", False),
        ("data/words.csv", False),
        ("words", False),
        ("/org/name", False),
    ],
)
def test_a_slip_is_not_looked_up(name: str, is_one: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert is_hub_data(Path(name)) is is_one
