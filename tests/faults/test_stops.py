"""SIGTERM and Ctrl-C under every launcher: a clean end, one line how to go on, nobody and nothing left behind."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from sightline.auditing.config import AuditConfig
from tests.faults.processes import row_files, until
from tests.faults.ways import SLOW, started

STOPS = [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")]


@pytest.mark.parametrize("launcher", ["inline", "local", "queue", "ray"])
@pytest.mark.parametrize(("name", "code", "how"), STOPS)
def test_a_stopped_command_ends_clean_and_goes_on(
    launcher: str,
    name: str,
    code: int,
    how: str,
    small: AuditConfig,
    equals_undisturbed: Callable[[AuditConfig], bool],
) -> None:
    command = started(small, launcher, fault=SLOW)
    until(lambda: row_files(small) >= 2 or not command.runs, "the first rows")
    if name == "SIGINT":
        command.press_ctrl_c()
    else:
        command.signal(signal.SIGTERM)
    done = command.done()
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1] == f"{how}; finished shards are kept, run the same command to go on"
    assert command.leaves_nobody_behind()
    assert not list(small.out.glob("leases/*.json")), "whoever comes next need not wait"
    assert not list(small.out.rglob("*.tmp"))
    assert row_files(small) >= 2, "what was finished is kept"

    assert started(small, "inline").done().returncode == 0
    assert equals_undisturbed(small)


def test_those_who_share_a_folder_finish_what_a_stopped_one_began(
    small: AuditConfig, equals_undisturbed: Callable[[AuditConfig], bool]
) -> None:
    stopped, staying = (started(small, "queue", fault=SLOW) for _ in range(2))
    until(lambda: row_files(small) >= 2, "the first rows")
    stopped.signal(signal.SIGTERM)
    assert stopped.done().returncode == 143
    assert staying.done().returncode == 0
    assert equals_undisturbed(small)
