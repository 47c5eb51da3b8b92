"""Machines that fail: clocks that jump, disks that are full, memory that runs out, two drivers at once."""

import re
from pathlib import Path

import pytest

from sightline import AuditConfig, load_run
from tests.faults.conftest import Disk, Equal
from tests.faults.killing import SLOW, each_launcher, killed_in_the_middle, settings_files, started
from tests.faults.processes import row_files
from tests.launching import wait_until

JUMPING = """
import itertools, time

plain, years = time.time, itertools.cycle([0, 10, -10, 3])
time.time = lambda: plain() + next(years) * 365 * 86400
time.time_ns = lambda: int(time.time() * 1e9)
"""
AHEAD, BEHIND = (JUMPING.replace("[0, 10, -10, 3]", f"[{years}]") for years in (5, -5))


@each_launcher
def test_a_clock_that_jumps_changes_no_row(launcher: str, small: AuditConfig, equals_undisturbed: Equal) -> None:
    killed_in_the_middle(small, launcher)
    assert started(small, launcher, fault=JUMPING).done().returncode == 0
    assert equals_undisturbed(small)


def test_machines_whose_clocks_are_ten_years_apart_share_a_folder(
    small: AuditConfig, equals_undisturbed: Equal
) -> None:
    """Nobody takes a living process for dead, which would be work done twice and a note about a lost worker."""
    ahead, behind = (started(small, "queue", fault=clock + SLOW) for clock in (AHEAD, BEHIND))
    wait_until(lambda: row_files(small) >= 2)
    for command in (ahead, behind):
        done = command.done()
        assert done.returncode == 0, done.stderr
    assert not list(small.out.glob("notes/failed*")), "nobody was given up"
    assert equals_undisturbed(small)


@each_launcher
@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_disk_without_room_or_leave_to_write_ends_a_run_that_goes_on_when_it_has_them(
    launcher: str, trouble: str, small: AuditConfig, disk: Disk, equals_undisturbed: Equal
) -> None:
    settings = small.model_copy(update={"out": disk.path / "run"})
    killed_in_the_middle(settings, launcher)
    before = row_files(settings)
    if trouble == "full":
        disk.resize(disk.used + 60)
    else:
        disk.make_read_only()
    done = started(settings, launcher, place=small.out.parent).done()
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    said = ("No space left on device",) if trouble == "full" else ("Read-only file system", "not writable")
    assert any(words in done.stderr for words in said), done.stderr
    assert before <= row_files(settings) < settings_files(settings)
    if trouble == "full":
        assert not list(settings.out.glob("rows/*/.*.tmp")), "what did not fit is not left half-written"

    disk.resize(64 * 1024)
    assert started(settings, launcher, place=small.out.parent).done().returncode == 0
    assert equals_undisturbed(settings)


GREEDY = """
import os
from dataclasses import dataclass
from typing import ClassVar

import torch

from sightline import Selection, Selector
from sightline.selectors import SELECTORS


@SELECTORS.register("greedy")
@dataclass(frozen=True)
class Greedy(Selector):
    "Asks for a hundred gigabytes, which need not be there, before it keeps the first tokens."

    name: ClassVar[str] = "greedy"

    def select(self, view, k):
        if not os.path.exists(os.environ["SIGHTLINE_TESTS_ROOM"]):
            torch.empty(100 * 2**30, dtype=torch.uint8)
        return Selection(torch.arange(k))
"""
LIMITED = """
import os, resource

os.environ["SIGHTLINE_TESTS_ROOM"] = {room!r}
resource.setrlimit(resource.RLIMIT_AS, (64 * 2**30, 64 * 2**30))
"""


@each_launcher
def test_memory_that_runs_out_costs_the_work_that_needs_it(
    launcher: str, small: AuditConfig, tmp_path: Path, equals_undisturbed: Equal
) -> None:
    selector, room = tmp_path / "greedy.py", tmp_path / "room"
    selector.write_text(GREEDY, encoding="utf-8")
    settings = small.model_copy(update={"arms": [*small.arms, "greedy:0.3"], "imports": [selector]})
    fault = LIMITED.format(room=str(room))
    done = started(settings, launcher, fault=fault).done()
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "greedy" in done.stderr
    assert "memory" in done.stderr
    if launcher != "inline":  # there an arm that fails ends the command
        run = load_run(settings.out)
        assert set(run.frame()["arm"]) == set(small.arms), "all else was computed"

    room.touch()
    assert started(settings, launcher, fault=fault).done().returncode == 0
    frame = load_run(settings.out).frame()
    assert (frame["arm"] == "greedy:0.3").sum() == (frame["arm"] == "full").sum()


@pytest.mark.parametrize(
    ("first", "second"), [("inline", "inline"), ("inline", "local"), ("local", "inline"), ("queue", "inline")]
)
def test_a_driver_is_refused_while_another_writes(
    first: str, second: str, small: AuditConfig, equals_undisturbed: Equal
) -> None:
    begun = started(small, first, fault=SLOW)
    wait_until(lambda: row_files(small) >= 1 or not begun.runs)
    refused = started(small, second).done()
    assert refused.returncode == 2
    (line,) = (line for line in refused.stderr.splitlines() if "is being written by" in line)
    if first != "local":
        assert f"process {begun.pid} on" in line
    assert re.search(r"process \d+ on \S+, since .*--launcher queue", line), line
    assert begun.done().returncode == 0
    assert equals_undisturbed(small)


def test_of_two_that_begin_at_the_same_moment_one_writes(small: AuditConfig, equals_undisturbed: Equal) -> None:
    both = [started(small, "inline", fault=SLOW) for _ in range(2)]
    done = [command.done() for command in both]
    codes = sorted(each.returncode for each in done)
    assert codes in ([0, 2], [0, 0]), [each.stderr for each in done]  # the second may come when all is done
    assert equals_undisturbed(small)
