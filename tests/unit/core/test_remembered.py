"""Remembered results: files that nobody can be led astray by, and one line where none can be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sightline.core.cache import remember
from sightline.errors import SightlineError


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
