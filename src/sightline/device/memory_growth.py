"""How much memory a piece of work needed at its peak, beyond what was in use when it began."""

from __future__ import annotations

import re
from pathlib import Path
from types import TracebackType

import torch

STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class MemoryGrowth:
    """A context. On a GPU what PyTorch allocated; elsewhere what the process held in memory, where Linux tells."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.grown: int | None = None
        """Bytes, known once the context has ended; None where nobody can tell."""

    def __enter__(self) -> MemoryGrowth:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before: int | None = torch.cuda.memory_allocated(self._device)
        else:
            self._before = _host("VmRSS") if _peak_forgotten() else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cuda = self._device.type == "cuda"
        peak = torch.cuda.max_memory_allocated(self._device) if cuda else _host("VmHWM")
        self.grown = None if self._before is None or peak is None else max(0, peak - self._before)


def _peak_forgotten() -> bool:
    """Tells the kernel to count the process's peak anew from here."""
    try:
        FORGET.write_text("5")
    except OSError:
        return False
    return True


def _host(field: str) -> int | None:
    try:
        found = re.search(rf"^{field}:\s*(\d+) kB$", STATUS.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024
