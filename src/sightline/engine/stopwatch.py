"""Elapsed time on the device that does the work, read without making the host wait for it."""

from __future__ import annotations

import time
from typing import Any

import torch


class Stopwatch:
    """Started when made, stopped once. On a GPU two events in the current stream; elsewhere the host's clock."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        if self._cuda:
            cuda: Any = torch.cuda
            self._first, self._last = (cuda.Event(enable_timing=True) for _ in range(2))
            self._first.record()
        else:
            self._started = time.perf_counter()

    def stop(self) -> None:
        if self._cuda:
            self._last.record()
        else:
            self._ended = time.perf_counter()

    @property
    def ms(self) -> float:
        """Milliseconds between start and stop; waits until the device has got there."""
        if self._cuda:
            self._last.synchronize()
            return float(self._first.elapsed_time(self._last))
        return (self._ended - self._started) * 1e3
