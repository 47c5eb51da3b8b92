"""Signed decisions on disk: read back as written, refused once changed, used by reports and controls."""

from __future__ import annotations

from pathlib import Path

import pytest

from sightline.controls.screening import reviewed_images
from sightline.errors import SightlineError
from sightline.probes.typed_rows import SignedDecision, is_decision_file, read_decision_file, write_decisions
from sightline.rows.usable import read_probe_list

DECISIONS = (
    SignedDecision("a-no", "a", ("a-yes", "a-no"), "valid_negative", True, "agreement"),
    SignedDecision("b-no", "b", ("b-yes", "b-no"), "unclear", False, "adjudicated"),
)


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    path = tmp_path / "decisions.jsonl"
    write_decisions(path, {"kind": "hard-negatives", "signed_by": "dora"}, DECISIONS)
    return path


def test_it_is_read_back_as_written(signed: Path) -> None:
    found = read_decision_file(signed)
    assert found.decisions == DECISIONS
    assert found.head["signed_by"] == "dora"
    assert is_decision_file(signed)


def test_a_changed_decision_is_noticed(signed: Path) -> None:
    signed.write_text(signed.read_text().replace('"valid": false', '"valid": true'), encoding="utf-8")
    with pytest.raises(SightlineError, match="changed after it was signed off by dora"):
        read_decision_file(signed)


def test_a_decision_that_was_taken_out_is_noticed(signed: Path) -> None:
    signed.write_text("\n".join(signed.read_text().splitlines()[:-1]), encoding="utf-8")
    with pytest.raises(SightlineError, match="changed after"):
        read_decision_file(signed)


def test_other_files_are_none(tmp_path: Path) -> None:
    other = tmp_path / "ids.txt"
    other.write_text("a-yes\n", encoding="utf-8")
    assert not is_decision_file(other)
    assert not is_decision_file(tmp_path / "missing")
    with pytest.raises(SightlineError, match="not JSON"):
        read_decision_file(other)


def test_a_report_is_limited_to_both_probes_of_a_valid_image(signed: Path) -> None:
    assert read_probe_list(signed).ids == {"a-yes", "a-no"}


def test_controls_are_built_from_valid_images(signed: Path) -> None:
    assert reviewed_images(signed) == {"a"}


def test_nothing_valid_is_said(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    write_decisions(path, {"signed_by": "dora"}, DECISIONS[1:])
    for read in (read_probe_list, reviewed_images):
        with pytest.raises(SightlineError, match="valid, so there is nothing to"):
            read(path)
