"""Memory that was freed stays with the process: asking the kernel for it again took as long as what tests compute.

Between tests it goes back, where it has become much.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""
GIB = 2**30


def keep_freed_memory() -> None:
    """From now on large blocks come from the heap, and the heap is not given back.

    By default glibc maps every large tensor anew and unmaps it when it is freed, so that the kernel clears its pages
    each time. Runs of tiny models free such tensors all the time.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # not every C library has it
        mallopt(M_MMAP_THRESHOLD, GIB)
        mallopt(M_TRIM_THRESHOLD, 2 * GIB - 1)


_least = 0
"""Bytes of this process when memory was last given back."""


def give_back_memory(grown: int = GIB // 4) -> None:
    """What nothing refers to any more, if this process has ``grown`` by so many bytes since it last did."""
    global _least
    if sys.platform != "linux" or _size() <= max(_least, GIB // 2) + grown:
        return
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    _least = _size()


def _size() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_memory() -> int:
    """Bytes that this process had in memory at most."""
    kibibytes_or_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kibibytes_or_bytes * (1 if sys.platform == "darwin" else 1024)
