"""A fresh process per measurement: no leftover of one (caches, clocks, compiled code, memory) touches the next.

The measuring process does not outlive whoever asked for it: nobody would read its result, and it may hold a GPU.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sightline.cost.request import Request
from sightline.errors import SightlineError

PR_SET_PDEATHSIG = 1


def measure(request: Request) -> dict[str, Any]:
    """Runs a request in a process of its own and returns its result."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder, "request.json"), Path(folder, "result.json")
        asked.write_text(json.dumps(request.as_dict()), encoding="utf-8")
        finished = _run([sys.executable, "-m", "sightline.cost.measuring_process", str(asked), str(answer)])
        if not answer.is_file():
            raise SightlineError(_last_words(finished))
        result: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in result:
        raise SightlineError(str(result["error"]))
    return result


def separate(request: Request) -> Iterable[Request]:
    """One request per arm, so that each arm gets a process of its own."""
    return (request.model_copy(update={"arms": (arm,)}) for arm in request.arms)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """The command to its end. Its standard input ends when this process does, which is how it notices."""
    # The package may be used from a source tree: the new process must find the same one.
    source = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH", ""))))
    watched, held = os.pipe()
    try:
        return subprocess.run(
            command, stdin=watched, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
    finally:
        os.close(watched)
        os.close(held)


def _last_words(finished: subprocess.CompletedProcess[str]) -> str:
    """Why there is no result, in one line."""
    if finished.returncode == -signal.SIGKILL:
        return (
            "the measuring process was killed from outside, most likely because memory ran out; use a smaller model, "
            "dtype, image size or batch"
        )
    if finished.returncode < 0:
        name = signal.Signals(-finished.returncode).name
        return f"the measuring process was ended by {name}, which is no fault of the options"
    lines = finished.stderr.strip().splitlines() or ["no message"]
    return f"the measuring process ended with code {finished.returncode}: {lines[-1]}"


def end_with_parent(watched: int) -> None:
    """From now on this process dies when its parent does, however that happens.

    ``watched`` is the reading end of a pipe whose other end only the parent holds and never writes to: reading from it
    returns when the parent is gone. That works everywhere, but needs a thread that gets its turn; Linux is therefore
    asked to kill this process as well, which nothing can delay.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_at_end_of_file, args=(watched,), daemon=True).start()


def _end_at_end_of_file(watched: int) -> None:
    while os.read(watched, 1):
        pass
    os._exit(1)
