"""Disks that are full or read-only: one line, nothing half-written, and the run goes on when there is room again."""

from __future__ import annotations

from collections.abc import Callable

from sightline.auditing.config import AuditConfig
from tests.faults.conftest import Disk
from tests.faults.processes import row_files
from tests.faults.ways import each_launcher, killed_in_the_middle, settings_files, started

Equal = Callable[[AuditConfig], bool]


@each_launcher
def test_a_full_disk_ends_a_run_that_goes_on_when_there_is_room(
    launcher: str, small: AuditConfig, disk: Disk, equals_undisturbed: Equal
) -> None:
    settings = small.model_copy(update={"out": disk.path / "run"})
    killed_in_the_middle(settings, launcher)
    before = row_files(settings)
    disk.resize(disk.used + 60)
    done = started(settings, launcher, place=small.out.parent).done()
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr, done.stderr
    assert before <= row_files(settings) < settings_files(settings)
    assert not list(settings.out.glob("rows/*/.*.tmp")), "what did not fit is not left half-written"

    disk.resize(64 * 1024)
    assert started(settings, launcher, place=small.out.parent).done().returncode == 0
    assert equals_undisturbed(settings)


@each_launcher
def test_a_folder_that_became_read_only_is_refused_in_one_line(
    launcher: str, small: AuditConfig, disk: Disk, equals_undisturbed: Equal
) -> None:
    settings = small.model_copy(update={"out": disk.path / "run"})
    killed_in_the_middle(settings, launcher)
    disk.make_read_only()
    done = started(settings, launcher, place=small.out.parent).done()
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "Read-only file system" in done.stderr or "not writable" in done.stderr, done.stderr

    disk.resize(64 * 1024)
    assert started(settings, launcher, place=small.out.parent).done().returncode == 0
    assert equals_undisturbed(settings)
