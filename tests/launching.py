"""Runs of ``sightline run`` as processes of their own, for tests of launchers: started, watched, killed, compared."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from sightline import AuditConfig, load_run
from sightline.auditing.config import flag_of
from sightline.core.row import TIME_COLUMNS
from tests.conftest import REPOSITORY
from tests.warm_python import SOURCES, Popen

PATIENCE = 3600.0
"""Seconds after which something that should happen is taken for something that never will."""


def words_of(config: AuditConfig) -> list[str]:
    """The options of ``sightline run`` that say the same as a configuration."""
    words = []
    for name, value in config.model_dump(exclude_unset=True).items():
        if value is None:
            continue
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{flag_of(name).removeprefix('--')}")
            continue
        if isinstance(value, dict):
            value = [f"{key}={entry}" for key, entry in value.items()]
        for item in value if isinstance(value, list) else [value]:
            words += [flag_of(name), str(item)]
    return words


def start(
    config: AuditConfig, *, script: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """``sightline run`` in the background. ``script`` is Python that is run first, in the same process."""
    code = f"{script}\nfrom sightline.cli import main\nmain()\n"
    paths = os.pathsep.join([*map(str, SOURCES), str(REPOSITORY)])
    return Popen(
        [sys.executable, "-c", code, "run", *words_of(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **(environment or {})},
    )


def finish(process: subprocess.Popen[str], code: int | None = 0) -> tuple[str, str]:
    """What it printed, standard output and error, once it has ended as it should."""
    out, err = process.communicate(timeout=PATIENCE)
    assert code is None or process.returncode == code, err
    return out, err


@contextmanager
def running(*processes: subprocess.Popen[str]) -> Iterator[None]:
    """None of them outlives the test."""
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


def wait_until(happened: Callable[[], Any], while_alive: Sequence[subprocess.Popen[str]] = ()) -> Any:
    """What ``happened`` answers, as soon as that is something; no sooner ends one of the processes."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        if found := happened():
            return found
        for process in while_alive:
            assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    raise AssertionError("it never happened")


def row_files(out: Path) -> list[Path]:
    return sorted(out.glob("rows/*/*.parquet"))


def facts_of(out: Path) -> pa.Table:
    """All rows of a run in their order, less the columns that are times."""
    return load_run(out).rows.drop_columns(list(TIME_COLUMNS))


def holders(out: Path) -> dict[str, int]:
    """Process ids by the name of the lease that they hold."""
    found = {}
    for file in sorted((out / "leases").glob("*.json")):
        try:
            found[file.name.rsplit(".", 2)[0]] = int(json.loads(file.read_text())["pid"])
        except (OSError, ValueError, KeyError):
            continue
    return found


def workers_of(out: Path) -> list[int]:
    """Process ids of those that share a folder."""
    return [pid for name, pid in holders(out).items() if name.startswith("member-")]


def is_alive(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)


TOUCHY = "SIGHTLINE_TESTS_TOUCHY"
"""Environment variable with the path of a JSON file that says what the selector ``touchy`` does wrong."""
_PLUGIN = f"""
import json, os, signal, time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from sightline.core.selection import Selection, Selector
from sightline.selectors import SELECTORS


@SELECTORS.register("touchy")
@dataclass(frozen=True)
class Touchy(Selector):
    name: ClassVar[str] = "touchy"

    def select(self, view, k):
        moods = self.moods()
        while view.probe_id in moods.get("waits", ()):
            time.sleep(0.05)
            moods = self.moods()
        if view.probe_id in moods.get("raises", ()):
            raise KeyError(view.probe_id)
        if view.probe_id in moods.get("dies", ()):
            os.kill(os.getpid(), signal.SIGKILL)
        return Selection(torch.arange(k))

    def moods(self):
        return json.loads(Path(os.environ["{TOUCHY}"]).read_text())
"""


class Touchy:
    """A selector that waits, raises or dies where it is told to, in whichever process."""

    def __init__(self, folder: Path) -> None:
        self.plugin, self.moods = folder / "touchy.py", folder / "moods.json"
        self.plugin.write_text(f"{_PLUGIN}# {folder}\n")  # a file of the same content is imported once per process
        self.be()

    def be(self, **moods: Any) -> None:
        """``waits`` (until it is told otherwise), ``raises`` and ``dies`` are lists of probe ids."""
        fresh = self.moods.with_suffix(".new")
        fresh.write_text(json.dumps(moods))
        os.replace(fresh, self.moods)
