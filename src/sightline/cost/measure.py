"""A fresh process per measurement: no leftover of one (caches, clocks, compiled code, memory) touches the next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sightline.cost.request import Request
from sightline.errors import SightlineError


def measure(request: Request) -> dict[str, Any]:
    """Runs a request in a process of its own and returns its result."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder, "request.json"), Path(folder, "result.json")
        asked.write_text(json.dumps(request.as_dict()), encoding="utf-8")
        # The package may be used from a source tree: the new process must find the same one.
        source = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH", ""))))
        finished = subprocess.run(
            [sys.executable, "-m", "sightline.cost.measuring_process", str(asked), str(answer)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        if not answer.is_file():
            lines = finished.stderr.strip().splitlines() or ["no message"]
            raise SightlineError(f"the measuring process ended with code {finished.returncode}: {lines[-1]}")
        result: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in result:
        raise SightlineError(str(result["error"]))
    return result


def separate(request: Request) -> Iterable[Request]:
    """One request per arm, so that each arm gets a process of its own."""
    return (replace(request, arms=(arm,)) for arm in request.arms)
