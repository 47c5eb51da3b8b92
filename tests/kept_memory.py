"""Memory that was freed stays with the process: asking the kernel for it again took as long as what tests compute.

Between tests it goes back, where it has become much.
"""

import ctypes
import gc
import linecache
import os
import resource
import sys
from pathlib import Path

import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""
KERNELS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64"}
"""Compiled products of matrices that torch remembers, of 1,024 by default: 250 KiB for every shape that tests try."""
GIB = 2**30


def keep_freed_memory() -> None:
    """From now on blocks of up to 64 MiB come from the heap, and the heap is not given back.

    By default glibc maps every large tensor anew and unmaps it when it is freed, so that the kernel clears its pages
    each time. Runs of tiny models free such tensors all the time. What is larger still, attention over whole pages, is
    mapped as ever: in the heap small blocks settle between such, and it grew to several gigabytes in some sessions.
    """
    os.environ.update(KERNELS)
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # not every C library has it
        mallopt(M_MMAP_THRESHOLD, GIB // 16)
        mallopt(M_TRIM_THRESHOLD, 2 * GIB - 1)


_least = 0
"""Bytes of this process when memory was last given back."""


def give_back_memory(file_is_done: bool) -> None:
    """What nothing refers to any more: where the process has grown much since it last did, or is large after a file.

    What outlives its file stays for long, mostly modules: no later search for garbage looks at it again.
    """
    global _least
    size = _size() if sys.platform == "linux" else 0
    much = size > max(_least, GIB // 2) + GIB // 4 or (file_is_done and size > GIB + GIB // 4)
    if much or file_is_done:
        gc.collect()
    if file_is_done:
        gc.freeze()
    if not much:
        return
    if file_is_done and "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    # Lines of other people's modules, which tracebacks and compilers have looked at.
    linecache.cache = {name: entry for name, entry in linecache.cache.items() if len(entry) == 1 or entry[1] is None}
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
