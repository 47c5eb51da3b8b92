"""Data sets of the hub by their id: which files are meant, fetched through a stub; one line where there is no way."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from sightline.probes.hub_data import hub_files, is_hub_data
from tests.refusals import Refused

VALIDATION = ["DocVQA/validation-00000-of-00002.parquet", "DocVQA/validation-00001-of-00002.parquet"]
TEST, INFOGRAPHICS = "DocVQA/test-00000-of-00001.parquet", "InfographicVQA/validation-00000-of-00001.parquet"
ONE = "data/train-00000-of-00001.parquet"
HUB = {"org/all": ["README.md", TEST, *VALIDATION[::-1], INFOGRAPHICS], "org/one": [ONE], "org/none": ["a.zip"]}


@pytest.mark.parametrize(
    ("asked", "files", "revision"),
    [
        ("org/all:DocVQA/validation", VALIDATION, None),
        ("org/all@abc:DocVQA/test", [TEST], "abc"),
        ("org/one", [ONE], None),
        (
            "org/all",
            "several parts: DocVQA/test, DocVQA/validation, InfographicVQA/validation; name one, org/all",
            "",
        ),
        ("org/all:nothing", "no part nothing; choose from DocVQA/test", ""),
        ("org/none", "no parquet files", ""),
        ("org/unknown", "cannot be fetched (KeyError): that takes huggingface_hub and a network", ""),
    ],
)
def test_the_shards_of_one_part_are_fetched_in_order_or_it_is_said_why_not(
    asked: str,
    files: list[str] | str,
    revision: str | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    refused: Refused,
) -> None:
    fetched: list[dict[str, Any]] = []

    def listed(name: str, *, repo_type: str, revision: str | None) -> list[str]:
        assert repo_type == "dataset"
        return HUB[name]

    def snapshot(name: str, **how: Any) -> str:
        fetched.append(how)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: SimpleNamespace(list_repo_files=listed))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert is_hub_data(Path(asked))
    if isinstance(files, str):
        refused(files, hub_files, Path(asked))
        assert not fetched
    else:
        assert hub_files(Path(asked)) == [tmp_path / file for file in files]
        assert fetched == [{"repo_type": "dataset", "revision": revision, "allow_patterns": files}]


def test_a_slip_is_not_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert is_hub_data(Path("lmms-lab/DocVQA"))
    assert not [name for name in ("data/typo", "data/words.csv", "words", "/org/name") if is_hub_data(Path(name))]
