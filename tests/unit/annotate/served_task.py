"""The real server of a task, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.warm_python import Popen


class ServedTask(NamedTuple):
    """A server that listens, and the address that it printed."""

    process: subprocess.Popen[str]
    address: str

    @property
    def origin(self) -> str:
        return self.address.partition("/?")[0]


@contextmanager
def served(*words: str | Path) -> Iterator[ServedTask]:
    """``sightline annotate WORDS``; killed at the end if it still runs."""
    command = [sys.executable, "-m", "sightline", "annotate", *map(str, words), "--no-open"]
    process = Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert process.stdout is not None
    try:
        address = next(line.split()[1] for line in process.stdout if line.startswith("open "))
        yield ServedTask(process, address)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
