"""Kills at random moments, a few of them, and stops; ``python -m benchmarks.kills --kills 200`` does many."""

import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.kills import AUDIT, killed, small_audit, undisturbed

from sightline import AuditConfig
from tests.faults.conftest import Equal
from tests.faults.killing import SLOW, difference, started
from tests.faults.processes import row_files
from tests.integration.conftest import facts
from tests.launching import wait_until


@pytest.mark.parametrize("launcher", ["inline", "local", "queue"])
def test_a_few_kills_do_no_harm(launcher: str, tmp_path: Path) -> None:
    tally = killed(launcher, kills=3, place=tmp_path, seed=1)
    assert tally.kills == 3
    assert tally.runs >= 1
    assert tally.harm == 0, tally


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    found, files = undisturbed(small_audit(tmp_path_factory.mktemp("undisturbed")))
    assert files == len(AUDIT["arms"]) * AUDIT["limit"]
    return facts(found)


def test_the_comparison_sees_what_is_lost_changed_or_there_twice(rows: pd.DataFrame) -> None:
    none = {"lost": 0, "changed": 0, "doubled": 0}
    assert difference(rows, rows.copy()) == none
    assert difference(rows, rows.drop(index=[3, 5])) == {**none, "lost": 2}
    assert difference(rows, pd.concat([rows, rows[2:5]])) == {**none, "doubled": 3}
    other = rows.copy()
    other["margin"] = other["margin"].where(other.index != 4, np.nextafter(other["margin"], 9))
    assert difference(rows, other) == {**none, "changed": 1}


STOPS = [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")]


@pytest.mark.parametrize("launcher", ["inline", "local", "queue", "ray"])
@pytest.mark.parametrize(("name", "code", "how"), STOPS)
def test_a_stopped_command_ends_clean_and_goes_on(
    launcher: str, name: str, code: int, how: str, small: AuditConfig, equals_undisturbed: Equal
) -> None:
    command = started(small, launcher, fault=SLOW)
    wait_until(lambda: row_files(small) >= 2 or not command.runs)
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
    small: AuditConfig, equals_undisturbed: Equal
) -> None:
    stopped, staying = (started(small, "queue", fault=SLOW) for _ in range(2))
    wait_until(lambda: row_files(small) >= 2)
    stopped.signal(signal.SIGTERM)
    assert stopped.done().returncode == 143
    assert staying.done().returncode == 0
    assert equals_undisturbed(small)
