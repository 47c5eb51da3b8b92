"""A measuring process does not outlive whoever asked for it: nobody would read its result, and it may hold a GPU."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

PR_SET_PDEATHSIG = 1


def end_with_parent(watched: int) -> None:
    """From now on this process dies when its parent does, however that happens.

    ``watched`` is the reading end of a pipe whose other end only the parent holds and never writes to: reading from it
    returns when the parent is gone. That works everywhere, but needs a thread that gets its turn; Linux is therefore
    asked to kill this process as well, which nothing can delay.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_at_end_of_file, args=(watched,), daemon=True).start()


def _end_at_end_of_file(watched: int) -> None:
    while os.read(watched, 1):
        pass
    os._exit(1)
