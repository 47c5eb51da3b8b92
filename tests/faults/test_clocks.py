"""Clocks that jump or disagree decide nothing: not what is done, not who is dead."""

from __future__ import annotations

from collections.abc import Callable

from sightline.auditing.config import AuditConfig
from tests.faults.processes import row_files, until
from tests.faults.ways import SLOW, each_launcher, killed_in_the_middle, started

JUMPING = """
import itertools, time

plain, years = time.time, itertools.cycle([0, 10, -10, 3])
time.time = lambda: plain() + next(years) * 365 * 86400
time.time_ns = lambda: int(time.time() * 1e9)
"""
AHEAD, BEHIND = (
    f"""
import time

plain = time.time
time.time = lambda: plain() + {years} * 365 * 86400
time.time_ns = lambda: int(time.time() * 1e9)
"""
    for years in (5, -5)
)


@each_launcher
def test_a_clock_that_jumps_changes_no_row(
    launcher: str, small: AuditConfig, equals_undisturbed: Callable[[AuditConfig], bool]
) -> None:
    killed_in_the_middle(small, launcher)
    assert started(small, launcher, fault=JUMPING).done().returncode == 0
    assert equals_undisturbed(small)


def test_machines_whose_clocks_are_ten_years_apart_share_a_folder(
    small: AuditConfig, equals_undisturbed: Callable[[AuditConfig], bool]
) -> None:
    """Nobody takes a living process for dead, which would be work done twice and a note about a lost worker."""
    ahead, behind = (started(small, "queue", fault=clock + SLOW) for clock in (AHEAD, BEHIND))
    until(lambda: row_files(small) >= 2, "the first rows")
    for command in (ahead, behind):
        done = command.done()
        assert done.returncode == 0, done.stderr
    assert not list(small.out.glob("notes/failed*")), "nobody was given up"
    assert equals_undisturbed(small)
