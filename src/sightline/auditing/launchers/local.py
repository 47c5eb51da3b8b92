"""Several processes of this machine, each with a model of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from threading import Lock, Thread
from typing import Any, ClassVar

from sightline.auditing.audit import LAUNCHERS, Job, Launcher
from sightline.auditing.config import AuditConfig
from sightline.auditing.workers import TO_END, Ended, StartedWorker, run_workers, usable_cores, worker_configs

LAST_LINES = 20


@LAUNCHERS.register("local")
class Local(Launcher):
    """Several processes of this machine, one per GPU or group of CPU cores; a worker that dies is replaced."""

    name: ClassVar[str] = "local"

    def launch(self, job: Job) -> None:
        notes = _SaidOnce()
        run_workers(
            job, [partial(_Process, config, notes) for config in local_worker_configs(job.config, job.recorded)]
        )


def local_worker_configs(config: AuditConfig, recorded: Mapping[str, Any]) -> list[AuditConfig]:
    """One per worker, on the GPUs or cores of this machine."""
    import torch

    from sightline.backbones.loading import choose_device

    gpus = [config.device] if ":" in config.device else [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return worker_configs(config, recorded, gpus if choose_device(config.device).type != "cpu" else [], usable_cores())


class _SaidOnce:
    """Lines for the user that every worker has reason to say."""

    def __init__(self) -> None:
        self._lock, self._said = Lock(), set[str]()

    def __call__(self, line: str) -> None:
        with self._lock:
            if line not in self._said:
                self._said.add(line)
                print(line, file=sys.stderr, flush=True)


class _Process(StartedWorker):
    """A Python process of its own. It ends when its standard input does, which is when this process does."""

    def __init__(self, config: AuditConfig, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._answer: dict[str, Any] = {}
        environment = dict(os.environ)
        if config.threads is not None:
            environment["OMP_NUM_THREADS"] = str(config.threads)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sightline.auditing.worker_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**environment, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self._readers = [Thread(target=read, daemon=True) for read in (self._read_errors, self._read_answers)]
        for reader in self._readers:
            reader.start()
        with suppress(OSError):  # dead already, which its end tells better
            assert self._process.stdin is not None
            self._process.stdin.write(config.model_dump_json() + "\n")
            self._process.stdin.flush()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line.rstrip())
            if line.startswith("note: "):
                self._tell(line.rstrip())

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):
                self._answer = json.loads(line)

    def ended(self) -> Ended | None:
        code = self._process.poll()
        if code is None:
            return None
        for reader in self._readers:
            reader.join(1.0)
        if self._answer.get("done"):
            return Ended(done=True)
        said = next((line for line in reversed(self._lines) if line.strip()), "")
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}{f', {said}' if said else ''}"
        return Ended(error=str(self._answer.get("error", "")), how=how)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(TO_END)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
