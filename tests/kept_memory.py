"""Memory that was freed stays with the process: asking the kernel for it again took as long as what tests compute."""

from __future__ import annotations

import ctypes
import sys

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
