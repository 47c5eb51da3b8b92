"""Rows of replayed masks belong to the file they were made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sightline.auditing.audit import audit
from sightline.errors import SightlineError
from sightline.probes import read_probes
from sightline.store import RunFolder


def write(path: Path, probes: Path, kept: list[int]) -> None:
    lines = [json.dumps({"sample_id": probe.id, "kept_indices": kept}) for probe in read_probes(probes).probes]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def masks(tmp_path: Path, mini_probes: Path) -> Path:
    path = tmp_path / "masks.jsonl"
    write(path, mini_probes, [0, 3])
    return path


def test_an_audit_records_what_it_replayed_and_goes_on_with_it(config: Any, masks: Path) -> None:
    arm = f"masks:file={masks}"
    settings = config("llava", arms=[arm], limit=2)
    first = audit(settings).frame()
    assert first["k_tokens"].tolist() == [2] * len(first)
    assert list(RunFolder(settings.out).manifest()["inputs"]) == [arm]
    again = audit(config("llava", arms=[arm, "full"], limit=2)).frame()
    assert (again["arm"] == arm).sum() == len(first)


def test_another_content_is_refused(config: Any, masks: Path, mini_probes: Path) -> None:
    settings = config("llava", arms=[f"masks:file={masks}"], limit=2)
    rows = audit(settings).frame()
    write(masks, mini_probes, [5])
    with pytest.raises(SightlineError, match=r"holds rows of masks:file=.* made from other content of its file"):
        audit(settings)
    write(masks, mini_probes, [0, 3])
    assert audit(settings).frame()["kept_mask"].tolist() == rows["kept_mask"].tolist()


def test_an_unfinished_arm_of_an_earlier_command_is_checked_too(config: Any, masks: Path, mini_probes: Path) -> None:
    arm = f"masks:file={masks}"
    settings = config("llava", arms=[arm], limit=2, shard_images=1)
    audit(settings)
    RunFolder(settings.out).rows_file(arm, 1).unlink()
    write(masks, mini_probes, [5])
    with pytest.raises(SightlineError, match="made from other content"):
        audit(config("llava", arms=["full"], limit=2, shard_images=1))


def test_a_finished_arm_does_not_need_its_file_any_more(config: Any, masks: Path) -> None:
    audit(config("llava", arms=[f"masks:file={masks}"], limit=2))
    masks.unlink()
    assert set(audit(config("llava", arms=["full"], limit=2)).frame()["arm"]) == {f"masks:file={masks}", "full"}


def test_a_changed_file_is_read_again(config: Any, masks: Path, mini_probes: Path, tmp_path: Path) -> None:
    arm = f"masks:file={masks}"
    assert set(audit(config("llava", arms=[arm], limit=2)).frame()["k_tokens"]) == {2}
    write(masks, mini_probes, [5])
    assert set(audit(config("llava", arms=[arm], limit=2, out=tmp_path / "other")).frame()["k_tokens"]) == {1}
