"""Files of a run folder that were damaged between two commands: noticed by name or computed again, never reported."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.errors import SightlineError
from sightline.rows import load_run
from sightline.store import RunFolder
from tests.faults.ways import each_launcher, started

Damage = Callable[[Path], None]


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def cut_to_half(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def flipped(file: Path) -> None:
    """A bit in the first page of values."""
    content = bytearray(file.read_bytes())
    content[40] ^= 4
    file.write_bytes(content)


def zeroed(file: Path) -> None:
    """A hole as long as a block, as a crash of a machine leaves it, with the end of the file in place."""
    content = bytearray(file.read_bytes())
    content[512:4096] = bytes(4096 - 512)
    file.write_bytes(content)


@pytest.fixture
def complete(small: AuditConfig) -> AuditConfig:
    assert audit(small).missing == 0
    return small


def is_named_or_mended(
    settings: AuditConfig, launcher: str, file: Path, equals_undisturbed: Callable[[AuditConfig], bool]
) -> None:
    """The command ends well and the rows are right, or it and whoever reads the run name the file."""
    done = started(settings, launcher).done()
    assert "Traceback" not in done.stderr, done.stderr
    if done.returncode == 0:
        assert equals_undisturbed(settings)
        return
    assert file.name in done.stderr, done.stderr
    if file.parent.name == "images":  # rows can be read without them; those that were to be computed are missing
        assert load_run(settings.out).missing > 0
    else:
        with pytest.raises(SightlineError, match=file.name):
            load_run(settings.out).frame()
    file.unlink()  # what the line says
    assert started(settings, launcher).done().returncode == 0
    assert equals_undisturbed(settings)


@pytest.mark.parametrize("damage", [cut_short, cut_to_half, emptied, flipped, zeroed])
def test_a_damaged_file_of_rows_is_never_taken_for_done(
    damage: Damage, complete: AuditConfig, equals_undisturbed: Callable[[AuditConfig], bool]
) -> None:
    file = RunFolder(complete.out).rows_file("full", 1)
    damage(file)
    is_named_or_mended(complete, "inline", file, equals_undisturbed)


@each_launcher
def test_every_launcher_notices_a_file_that_was_cut_short(
    launcher: str, complete: AuditConfig, equals_undisturbed: Callable[[AuditConfig], bool]
) -> None:
    file = RunFolder(complete.out).rows_file("center:0.3", 2)
    cut_short(file)
    RunFolder(complete.out).rows_file("full", 0).unlink()  # there is something to do besides
    is_named_or_mended(complete, launcher, file, equals_undisturbed)


@pytest.mark.parametrize("damage", [cut_to_half, emptied])
def test_damaged_records_of_images_are_named(
    damage: Damage, complete: AuditConfig, equals_undisturbed: Callable[[AuditConfig], bool]
) -> None:
    file = complete.out / "images" / "00001.parquet"
    damage(file)
    RunFolder(complete.out).rows_file("full", 1).unlink()
    is_named_or_mended(complete, "inline", file, equals_undisturbed)


def test_a_file_of_another_run_is_never_taken_for_done(
    complete: AuditConfig, config: Any, tmp_path: Path, equals_undisturbed: Callable[[AuditConfig], bool]
) -> None:
    other = config("llava", arms=["full"], limit=4, shard_images=2, out=tmp_path / "other")
    audit(other)
    file = RunFolder(complete.out).rows_file("full", 1)
    shutil.copy(RunFolder(other.out).rows_file("full", 1), file)
    is_named_or_mended(complete, "inline", file, equals_undisturbed)
