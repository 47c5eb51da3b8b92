"""Splits by a hash: what is hashed together falls on the same side, whatever else is in the set."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal

from sightline.core.probe import Probe
from sightline.errors import SightlineError

Side = Literal["dev", "test"]
GroupBy = Literal["image", "record", "probe"]
Hash = Literal["sha1", "md5"]

BUCKETS = 10


def hash_side(group: str, dev_buckets: int = 5) -> Side:
    """``dev`` iff (first 8 hex digits of sha1(group)) mod 10 < ``dev_buckets``: the paper's split of yes/no probes."""
    bucket = int(hashlib.sha1(group.encode("utf-8")).hexdigest()[:8], 16) % BUCKETS
    return "dev" if bucket < dev_buckets else "test"


def even_side(group: str) -> Side:
    """``dev`` iff the first 8 hex digits of md5(group) are an even number: the paper's split of open questions."""
    return "test" if int(hashlib.md5(group.encode("utf-8")).hexdigest()[:8], 16) % 2 else "dev"


def probe_group(probe: Probe, group_by: GroupBy = "image") -> str:
    """``image``: the image id. ``probe``: the probe id. ``record``: the probe id up to its first colon, prefix included
    (``textocr-...``); all open questions of a task would be one record, so they are refused.
    """
    if group_by == "record" and probe.is_open:
        raise SightlineError(f"open questions ({probe.id}) have no records; group them by image or by probe")
    if group_by == "record":
        return probe.id.partition(":")[0]
    return probe.image_id if group_by == "image" else probe.id


def split_probes(
    probes: Iterable[Probe], *, group_by: GroupBy = "image", dev_buckets: int = 5, rule: Hash = "sha1"
) -> dict[Side, tuple[Probe, ...]]:
    """Both sides, each in file order. ``md5`` halves the set; how many tenths are ``dev`` is for ``sha1``."""
    sides: dict[Side, list[Probe]] = {"dev": [], "test": []}
    for probe in probes:
        group = probe_group(probe, group_by)
        sides[even_side(group) if rule == "md5" else hash_side(group, dev_buckets)].append(probe)
    return {side: tuple(found) for side, found in sides.items()}
