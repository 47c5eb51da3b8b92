"""Commands that a test may signal and kill: each is a session of its own, so that nothing it starts can hide.

Processes are forks of one that has torch imported (``tests/warm_python.py``); whatever they start themselves starts as
for users.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from sightline.auditing.config import AuditConfig
from tests.integration.test_resume import command
from tests.warm_python import REPOSITORY, run_python

PATIENCE = 1200.0
"""Seconds after which a test gives up: never what is measured."""
FAULT = "SIGHTLINE_TESTS_FAULT"
"""Environment variable with a Python file that every process of a command executes before anything else."""
SCRIPT = f"""
import os, sys
os.setsid()
place = sys.argv.pop(1)
with open(place + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(place + ".new", place)
if "{FAULT}" in os.environ:
    exec(compile(open(os.environ["{FAULT}"]).read(), os.environ["{FAULT}"], "exec"), {{}})
from sightline.cli import main
main()
"""
CUSTOMIZE = f"""
import os
if "{FAULT}" in os.environ:
    exec(compile(open(os.environ["{FAULT}"]).read(), os.environ["{FAULT}"], "exec"), {{}})
"""
"""What makes workers execute it too: Python imports a module of this name when it starts."""
_number = count()


class Command:
    """``sightline run`` with these settings, running."""

    def __init__(self, settings: AuditConfig, *more: str, fault: str = "", place: Path | None = None) -> None:
        scratch = place or settings.out.parent
        self._place = scratch / f"command-{os.getpid()}-{next(_number)}.pid"
        words = ["-c", SCRIPT, str(self._place), *command(settings)[2:], *more]
        pool = ThreadPoolExecutor(1)
        self._future = pool.submit(run_python, words, env=self._environment(fault))
        pool.shutdown(wait=False)

    def _environment(self, fault: str) -> Mapping[str, str]:
        paths = [str(REPOSITORY / "src"), str(REPOSITORY)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        if fault:
            folder = self._place.with_suffix(".fault")
            folder.mkdir()
            (folder / "fault.py").write_text(fault, encoding="utf-8")
            (folder / "sitecustomize.py").write_text(CUSTOMIZE, encoding="utf-8")
            environment[FAULT] = str(folder / "fault.py")
            paths.insert(0, str(folder))
        return {**environment, "PYTHONPATH": os.pathsep.join(paths)}

    @property
    def pid(self) -> int:
        """Of the process that was started; also the number of its session and group."""
        until(lambda: self._place.exists() or self._future.done(), "the command to start")
        return int(self._place.read_text())

    @property
    def runs(self) -> bool:
        return not self._future.done()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def press_ctrl_c(self) -> None:
        """As a terminal does: the signal goes to the whole group."""
        os.killpg(self.pid, signal.SIGINT)

    def done(self) -> subprocess.CompletedProcess[str]:
        """What it printed and its exit code, when it has ended."""
        return self._future.result(PATIENCE)

    @property
    def family(self) -> list[int]:
        """Living processes of its session, itself first where it lives."""
        return sorted(living_in(self.pid), key=lambda pid: pid != self.pid)

    def leaves_nobody_behind(self) -> bool:
        """Whether all that it started is gone, within a while after its end."""
        until(lambda: not self.family, f"{self.family} to end")
        return not self.family


def until(happened: Callable[[], bool], what: str) -> None:
    """Waits, and fails with a sentence when it never happens."""
    given_up = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > given_up:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(0.02)


def living_in(session: int) -> list[int]:
    """Processes of a session that are not zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            if int(words[3]) == session and words[0] not in "ZX":
                found.append(int(entry.name))
    return found


def computes(pid: int) -> bool:
    """Whether a process is a worker of ours, not what a cluster keeps besides: loggers, its store, its table."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"sightline.auditing.member" in words or words.startswith(b"ray::RemoteMember")


def row_files(settings: AuditConfig) -> int:
    return sum(1 for _ in settings.out.glob("rows/*/*.parquet"))
