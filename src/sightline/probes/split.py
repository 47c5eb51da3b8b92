"""The grouped hash split: every probe of an image falls on the same side, whatever else is in the set."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal

from sightline.core.probe import Probe

Side = Literal["dev", "test"]
GroupBy = Literal["image", "record"]

BUCKETS = 10


def hash_side(group: str, dev_buckets: int = 5) -> Side:
    """``dev`` iff (first 8 hex digits of sha1(group)) mod 10 < ``dev_buckets``."""
    bucket = int(hashlib.sha1(group.encode("utf-8")).hexdigest()[:8], 16) % BUCKETS
    return "dev" if bucket < dev_buckets else "test"


def probe_group(probe: Probe, group_by: GroupBy = "image") -> str:
    """``image``: the image id. ``record``: the probe id up to its first colon, prefix included (``textocr-...``)."""
    return probe.image_id if group_by == "image" else probe.id.partition(":")[0]


def split_probes(
    probes: Iterable[Probe], *, group_by: GroupBy = "image", dev_buckets: int = 5
) -> dict[Side, tuple[Probe, ...]]:
    """Both sides, each in file order."""
    sides: dict[Side, list[Probe]] = {"dev": [], "test": []}
    for probe in probes:
        sides[hash_side(probe_group(probe, group_by), dev_buckets)].append(probe)
    return {side: tuple(found) for side, found in sides.items()}
