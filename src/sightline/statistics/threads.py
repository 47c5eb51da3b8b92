"""NumPy's matrix products on one thread while reports, comparisons and gates are made.

Their products are small, and there are thousands: several threads gain nothing on an idle machine, and on a busy one
each product waits for the slowest of them.
"""

from __future__ import annotations

import ctypes
from contextlib import ContextDecorator
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any

NAMES = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")
"""What OpenBLAS calls it, in NumPy's own wheels and elsewhere."""


@cache
def _openblas() -> tuple[Any, Any] | None:
    """What sets and what tells the number of threads; None where NumPy multiplies by something else."""
    try:
        library = ctypes.CDLL(import_module("numpy._core._multiarray_umath").__file__)
    except (ImportError, OSError):
        return None
    found = next((name for name in NAMES if hasattr(library, name.format("set"))), None)
    return None if found is None else (getattr(library, found.format("set")), getattr(library, found.format("get")))


def product_threads() -> int | None:
    known = _openblas()
    return None if known is None else int(known[1]())


class OneThread(ContextDecorator):
    """A context, also above a function; within another, or in several threads at a time, the last to leave restores."""

    _lock, _inside, _before = Lock(), 0, 1

    def __enter__(self) -> None:
        with OneThread._lock:
            if OneThread._inside == 0 and (known := _openblas()) is not None:
                OneThread._before = int(known[1]())
                known[0](1)
            OneThread._inside += 1

    def __exit__(self, *_: object) -> None:
        with OneThread._lock:
            OneThread._inside -= 1
            if OneThread._inside == 0 and (known := _openblas()) is not None:
                known[0](OneThread._before)
