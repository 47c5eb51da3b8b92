"""Elapsed time on the device that does the work, read without making the host wait for it. Set-up is not counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class _SetUp(threading.local):
    ms = 0.0
    under_way = False


_set_up = _SetUp()
"""What this thread has spent on set-up so far."""


@contextmanager
def setting_up(device: torch.device, bill: list[float]) -> Iterator[None]:
    """Bills the time inside (compiling, capturing, first runs) and keeps it out of every stopwatch that is running.

    The device is idle when set-up begins and when it ends: a stopwatch that spans it has seen all of it pass. Set-up
    within set-up is billed once, to the outer one.
    """
    if _set_up.under_way:
        yield
        return
    _finish(device)
    started, _set_up.under_way = time.perf_counter(), True
    try:
        yield
        _finish(device)
    finally:
        elapsed = (time.perf_counter() - started) * 1e3
        _set_up.ms += elapsed
        _set_up.under_way = False
        bill.append(elapsed)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Stopwatch:
    """Started when made, stopped once. On a GPU two events in the current stream; elsewhere the host's clock.

    ``shared_by`` says how many results the measured work made together: each is billed an equal part.
    """

    def __init__(self, device: torch.device, shared_by: int = 1) -> None:
        self._shared_by = shared_by
        self._set_up = _set_up.ms
        self._stream: Any = torch.cuda.current_stream(device) if device.type == "cuda" else None
        if self._stream is not None:
            cuda: Any = torch.cuda
            self._first, self._last = (cuda.Event(enable_timing=True) for _ in range(2))
            self._first.record(self._stream)
        else:
            self._started = time.perf_counter()

    def stop(self) -> None:
        if self._stream is not None:
            self._last.record(self._stream)
        else:
            self._ended = time.perf_counter()
        self._set_up = _set_up.ms - self._set_up

    @property
    def ms(self) -> float:
        """Milliseconds between start and stop without set-up, per result; waits for the device."""
        if self._stream is not None:
            self._last.synchronize()
            elapsed = float(self._first.elapsed_time(self._last))
        else:
            elapsed = (self._ended - self._started) * 1e3
        return max(elapsed - self._set_up, 0.0) / self._shared_by
