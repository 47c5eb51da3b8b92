"""Seeded draws: the same on every machine and device, because they never leave the CPU."""

from __future__ import annotations

import hashlib
import random


def seeded(seed: int, key: str) -> random.Random:
    """A generator seeded with the first 16 hexadecimal digits of sha1("<seed>:<key>").

    The key names the probe, its view, the budget and the selector, so the two probes of one image get different draws.
    """
    digest = hashlib.sha1(f"{seed}:{key}".encode(), usedforsecurity=False).hexdigest()
    return random.Random(int(digest[:16], 16))
