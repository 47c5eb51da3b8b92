"""Work on a device: copies, clocks, memory, graphs, kernels. Here, when the work of this process last moved.

Its leases beat by that, so that one that hangs does not keep them.
"""

from __future__ import annotations

import time

_LAST = [time.monotonic()]


def moved() -> None:
    """Some work was done: a batch, an image, a file, a look at what others do."""
    _LAST[0] = time.monotonic()


def last_move() -> float:
    """When that was, on the monotonic clock."""
    return _LAST[0]
