"""Commands that a test may signal and kill: each is a session of its own, so that nothing it starts can hide.

All processes are forks of one that has torch imported (``tests/warm_python.py``).
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from sightline import AuditConfig
from sightline.auditing import worker_process
from tests.launching import row_files as files_of_rows
from tests.launching import wait_until, words_of
from tests.warm_python import LONGEST_NAME, REPOSITORY, SOURCES, Popen

PATIENCE = 1200.0
"""Seconds after which a test gives up: never what is measured."""
FAULT = "SIGHTLINE_TESTS_FAULT"
"""Environment variable with a Python file that every process of a command executes before anything else."""
CUSTOMIZE = f"""
import os
if "{FAULT}" in os.environ:
    exec(compile(open(os.environ["{FAULT}"]).read(), os.environ["{FAULT}"], "exec"), {{}})
"""
"""What makes them do so: Python imports a module of this name when it starts."""
_number = count()


class Command:
    """``sightline run`` with these settings, or ``sightline`` and what follows it; scratch files lie in ``place``."""

    def __init__(
        self, settings: AuditConfig | Sequence[str], *more: str, fault: str = "", place: Path | None = None
    ) -> None:
        words, place = settings, place
        if isinstance(settings, AuditConfig):
            words, place = ["run", *words_of(settings)], place or settings.out.parent
        assert place is not None
        self._said = [tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") for _ in range(2)]  # noqa: SIM115
        stdout, stderr = self._said
        self._process = Popen(
            [sys.executable, "-m", "sightline", *words, *more],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            env=self._environment(fault, place),
            start_new_session=True,
        )
        self.pid = self._process.pid
        """Also the number of its session and group."""

    def _environment(self, fault: str, place: Path) -> Mapping[str, str]:
        paths = [*map(str, SOURCES), str(REPOSITORY)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        if fault:
            folder = place / f"fault-{os.getpid()}-{next(_number)}"
            folder.mkdir()
            (folder / "fault.py").write_text(fault, encoding="utf-8")
            (folder / "sitecustomize.py").write_text(CUSTOMIZE, encoding="utf-8")
            environment[FAULT] = str(folder / "fault.py")
            paths.insert(0, str(folder))
        return {**environment, "PYTHONPATH": os.pathsep.join(paths)}

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def press_ctrl_c(self) -> None:
        """As a terminal does: the signal goes to the whole group."""
        os.killpg(self.pid, signal.SIGINT)

    def done(self) -> subprocess.CompletedProcess[str]:
        """What it printed and its exit code, when it has ended."""
        code = self._process.wait(PATIENCE)
        for file in self._said:
            file.seek(0)
        stdout, stderr = (file.read() for file in self._said)
        return subprocess.CompletedProcess(self._process.args, code, stdout, stderr)

    @property
    def family(self) -> list[int]:
        """Living processes of its session, itself first where it lives."""
        return sorted(living_in(self.pid), key=lambda pid: pid != self.pid)

    def leaves_nobody_behind(self) -> bool:
        """Whether all that it started is gone, within a while after its end."""
        wait_until(lambda: not self.family)
        return True


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
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return False
    return name == worker_process.__name__[-LONGEST_NAME:] or name.startswith("ray::RemoteWork")


def row_files(settings: AuditConfig) -> int:
    """How many files of rows there are."""
    return len(files_of_rows(settings.out))
