"""What is kept: the values used last, and files from run to run; and cells that are no formulas."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from sightline.core.cache import Recent, remember
from sightline.core.text import as_text, from_text, without_formulas
from sightline.errors import SightlineError


def test_what_was_not_used_for_longest_is_forgotten() -> None:
    made: list[str] = []
    recent: Recent[str, str] = Recent(2)

    def value(key: str) -> str:
        return recent.get(key, lambda: made.append(key) or key.upper())

    assert [value(key) for key in "abacab"] == list("ABACAB")
    assert made == ["a", "b", "c", "b"]
    assert len(recent) == 2


# Remembered results: files that nobody can be led astray by, and one line where none can be written.


def test_a_link_under_a_foreseen_name_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / f".result.json.{os.getpid()}.tmp").symlink_to(precious)
    remember(tmp_path / "result.json", b"{}")
    assert precious.read_text() == "mine"
    assert (tmp_path / "result.json").read_bytes() == b"{}"


def test_a_cache_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(SightlineError, match=r"cannot remember a result in .*SIGHTLINE_CACHE"):
        remember(tmp_path / "cache" / "boxes" / "result.json", b"{}")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(SightlineError, match="No space left"):
        remember(tmp_path / "result.json", b"{}")
    assert list(tmp_path.iterdir()) == []


# Cells of tables: no text is a formula, and every text can be had back.


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "=HYPERLINK(1)"])
def test_a_formula_becomes_text_and_comes_back(text: str) -> None:
    assert as_text(text) == f"'{text}"
    assert from_text(as_text(text)) == text


@pytest.mark.parametrize("value", ["target:0.3", "-0.25", "+3", "1e-3", "", "'quoted'", 5, -0.5, None, True])
def test_everything_else_stays(value: object) -> None:
    assert as_text(value) is value
    if isinstance(value, str):
        assert from_text(value) == value


def test_a_frame_has_its_texts_and_names_cleaned_and_its_numbers_alone() -> None:
    frame = pd.DataFrame({"arm": ["=1+1", "full", None], "value": [-1.0, 2.0, 3.0], "=x": ["a", "@b", "-1"]})
    assert without_formulas(frame).to_csv(index=False) == "arm,value,'=x\n'=1+1,-1.0,a\nfull,2.0,'@b\n,3.0,-1\n"
