"""SIGKILL at random moments, over and over, and what is left afterwards; the launchers as fault tests use them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sightline import AuditConfig, load_run
from tests.faults.processes import Command, computes, row_files
from tests.integration.conftest import facts
from tests.launching import wait_until

KEY = ["arm", "probe_id"]


WAYS: dict[str, Sequence[str]] = {
    "inline": (), "local": ("--workers", "2"), "queue": ("--worker-timeout", "5"), "ray": ("--workers", "2"),
}  # fmt: skip
"""Launchers as tests use them -> their options."""


@dataclass(frozen=True)
class Tally:
    """What came of some killing."""

    launcher: str
    drivers: int = 0
    """Commands that were killed."""
    workers: int = 0
    """Processes that a command had started and that were killed."""
    runs: int = 0
    """Run folders that were brought to an end."""
    commands: int = 0
    """Commands that took."""
    rows: int = 0
    lost: int = 0
    changed: int = 0
    doubled: int = 0
    left_behind: int = 0
    """Processes and half-written files that outlived a finished run."""

    @property
    def kills(self) -> int:
        return self.drivers + self.workers

    @property
    def harm(self) -> int:
        return self.lost + self.changed + self.doubled + self.left_behind

    def plus(self, **more: int) -> Tally:
        return replace(self, **{name: getattr(self, name) + number for name, number in more.items()})


class Killer:
    """Kills processes of one launcher until there were enough kills, run after run."""

    def __init__(self, launcher: str, settings: AuditConfig, undisturbed: pd.DataFrame, files: int, seed: int) -> None:
        self._settings, self._files = settings, files
        self._undisturbed, self._random = facts(undisturbed), Random(seed)
        self.tally = Tally(launcher)

    def go_on_until(self, kills: int) -> Tally:
        while self.tally.kills < kills:
            self._one_run(min(self._random.randint(3, 8), kills - self.tally.kills))
        return self.tally

    def _one_run(self, kills: int) -> None:
        out = self._settings.out.parent / f"{self.tally.launcher}-{self.tally.runs}" / "run"
        out.parent.mkdir(parents=True)
        settings = self._settings.model_copy(update={"out": out})
        wanted = self.tally.kills + kills
        codes = [1]
        commands: list[Command] = []
        while any(codes):
            together = 2 if self.tally.launcher == "queue" else 1
            commands = [started(settings, self.tally.launcher) for _ in range(together)]
            self.tally = self.tally.plus(commands=len(commands))
            while self.tally.kills < wanted and any(each.runs for each in commands):
                self._wait_a_moment(settings, commands)
                self._kill_somebody(commands)
            codes = [each.done().returncode for each in commands]
            survivors = [each for each in commands if not _ends(each)]
            self.tally = self.tally.plus(left_behind=sum(len(each.family) for each in survivors))
        self._compare(settings)

    def _wait_a_moment(self, settings: AuditConfig, commands: Sequence[Command]) -> None:
        """Some time, or some files more: a clock alone would hit mostly those who are starting."""
        if self._random.random() < 0.3:
            time.sleep(self._random.uniform(0, 3))
            return
        enough = min(self._files - 1, row_files(settings) + self._random.randint(0, self._files // 3))
        wait_until(lambda: row_files(settings) >= enough or not any(each.runs for each in commands))
        time.sleep(self._random.uniform(0, 0.2))

    def _kill_somebody(self, commands: Sequence[Command]) -> None:
        chosen = self._random.choice(commands)
        victims = [pid for pid in chosen.family if pid == chosen.pid or computes(pid)]
        if not victims or not chosen.runs:
            return
        victim = self._random.choice(victims)
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.tally = self.tally.plus(**{"drivers" if victim == chosen.pid else "workers": 1})

    def _compare(self, settings: AuditConfig) -> None:
        found = load_run(settings.out).frame()
        self.tally = self.tally.plus(runs=1, rows=len(found), **difference(self._undisturbed, facts(found)))
        halves = len(list(settings.out.rglob("*.tmp")))
        self.tally = self.tally.plus(left_behind=halves)


def _ends(command: Command) -> bool:
    try:
        return command.leaves_nobody_behind()
    except AssertionError:
        return False


def difference(wanted: pd.DataFrame, found: pd.DataFrame) -> dict[str, int]:
    """How many rows are missing, have another value, or are there twice."""
    doubled = int(found.duplicated(KEY).sum())
    once = found.drop_duplicates(KEY)
    shared = wanted.merge(once, on=KEY, suffixes=("", " found"))  # what is in one alone would make other types of all
    lost = len(wanted) + len(once) - 2 * len(shared)
    columns = [name for name in wanted.columns if name not in KEY]
    changed = pd.Series(False, index=shared.index)
    for name in columns:
        changed |= shared[name].map(_exactly) != shared[f"{name} found"].map(_exactly)
    return {"lost": lost, "changed": int(changed.sum()), "doubled": doubled}


def _exactly(value: Any) -> Any:
    """To the last bit; what is missing in both is the same."""
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value)


LAUNCHERS = ("inline", "local", "queue")
each_launcher = pytest.mark.parametrize("launcher", LAUNCHERS)


def started(settings: AuditConfig, launcher: str, *, fault: str = "", place: Path | None = None) -> Command:
    return Command(settings, "--launcher", launcher, *WAYS[launcher], fault=fault, place=place)


def killed_in_the_middle(settings: AuditConfig, launcher: str) -> None:
    """Leaves a run of which some files are there and some are not."""
    command = started(settings, launcher, fault=SLOW)
    wait_until(lambda: row_files(settings) >= 2 or not command.runs)
    command.signal(9)
    command.done()
    assert command.leaves_nobody_behind()
    assert 2 <= row_files(settings) < settings_files(settings), "killed in the middle"


def settings_files(settings: AuditConfig) -> int:
    """Files of rows when all is done."""
    assert settings.limit is not None
    return len(settings.arms) * -(-settings.limit // settings.shard_images)


SLOW = """
import time
from pathlib import Path
import os

plain = os.replace

def slowly(source, target):
    plain(source, target)
    if "rows" in Path(target).parts:
        time.sleep(0.3)

os.replace = slowly
"""
"""A fault that is none: every file of rows takes its time, so that a test can meet a run in its middle."""
