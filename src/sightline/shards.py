"""Probes grouped by picture into shards: the unit of encoding, writing and resuming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from sightline.errors import SightlineError
from sightline.probes.image_name import resolve_image
from sightline.probes.images import image_size
from sightline.types import Probe


@dataclass(frozen=True)
class Shard:
    """Consecutive pictures with all their probes."""

    index: int
    probes: tuple[Probe, ...]
    pictures: tuple[Probe, ...]
    """One probe per distinct picture, to say which file to open and what to occlude."""


def image_key(probe: Probe) -> str:
    """What distinguishes one encoded picture from another: the file and the boxes painted over."""
    if not probe.occlude:
        return probe.image
    return f"{probe.image}#{sha256(repr(probe.occlude).encode()).hexdigest()[:12]}"


def make_shards(probes: Sequence[Probe], pictures_per_shard: int, limit: int | None = None) -> list[Shard]:
    """Shards in order of first appearance of each picture; a picture's probes are never separated."""
    groups: dict[str, list[Probe]] = {}
    for probe in probes:
        groups.setdefault(image_key(probe), []).append(probe)
    keys = list(groups)[:limit]
    if not keys:
        raise SightlineError("the probe file holds no probes")
    shards: list[Shard] = []
    for start in range(0, len(keys), pictures_per_shard):
        members = keys[start : start + pictures_per_shard]
        shards.append(
            Shard(
                index=len(shards),
                probes=tuple(probe for key in members for probe in groups[key]),
                pictures=tuple(groups[key][0] for key in members),
            )
        )
    return shards


def check_images(root: Path, shards: Sequence[Shard]) -> None:
    """Every picture exists, can be opened and is not a bomb, before a model is loaded."""
    if not root.is_dir():
        raise SightlineError(f"image folder {root} does not exist")
    for name in dict.fromkeys(probe.image for shard in shards for probe in shard.pictures):
        image_size(resolve_image(root, name))
