"""Elapsed time on the device that does the work, read without making the host wait for it."""

from __future__ import annotations

import time
from typing import Any

import torch


class Stopwatch:
    """Started when made, stopped once. On a GPU two events in the current stream; elsewhere the host's clock.

    ``shared_by`` says how many results the measured work made together: each is billed an equal part.
    """

    def __init__(self, device: torch.device, shared_by: int = 1) -> None:
        self._shared_by = shared_by
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

    @property
    def ms(self) -> float:
        """Milliseconds between start and stop, per result; waits until the device has got there."""
        if self._stream is not None:
            self._last.synchronize()
            return float(self._first.elapsed_time(self._last)) / self._shared_by
        return (self._ended - self._started) * 1e3 / self._shared_by
