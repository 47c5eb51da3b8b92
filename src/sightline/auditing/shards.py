"""Probes grouped by picture into shards: the unit of encoding, writing and resuming."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from sightline.boxes.beside import BoxesBeside
from sightline.boxes.sources import Shown
from sightline.core.probe import ORIGINAL, Probe
from sightline.errors import SightlineError
from sightline.interventions import Intervention
from sightline.probes.image_name import resolve_image
from sightline.probes.images import image_size


@dataclass(frozen=True)
class Shard:
    """Consecutive pictures with all their probes."""

    index: int
    probes: tuple[Probe, ...]
    pictures: tuple[Probe, ...]
    """One probe per distinct picture, to say which file to open and what to occlude."""
    view: str = ORIGINAL
    """Which version of the pictures this is; every version of a shard has the same index."""

    def mapped(self, change: Callable[[Probe], Probe], view: str = ORIGINAL) -> Shard:
        """The shard with every probe changed, and the pictures that the changed probes are about."""
        probes = tuple(change(probe) for probe in self.probes)
        pictures = {image_key(probe): probe for probe in reversed(probes)}
        ordered = dict.fromkeys(image_key(probe) for probe in probes)
        return replace(self, probes=probes, pictures=tuple(pictures[key] for key in ordered), view=view)

    def under(self, intervention: Intervention | None) -> Shard:
        """The shard's questions about the pictures as an intervention shows them."""
        if intervention is None or intervention.view == ORIGINAL:
            return self
        return self.mapped(intervention.seen, intervention.view)


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


def with_boxes(shards: Sequence[Shard], boxes: BoxesBeside) -> tuple[list[Shard], Shown]:
    """The shards with the boxes of a box source on every probe, and what those boxes are like."""
    shown = boxes.shown([probe for shard in shards for probe in shard.probes])
    boxed = {(probe.id, probe.view): probe for probe in shown.probes}
    return [shard.mapped(lambda probe: boxed[probe.id, probe.view], shard.view) for shard in shards], shown


def check_images(root: Path, shards: Sequence[Shard]) -> None:
    """Every picture exists, can be opened and is not a bomb, before a model is loaded."""
    if not root.is_dir():
        raise SightlineError(f"image folder {root} does not exist")
    for name in dict.fromkeys(probe.image for shard in shards for probe in shard.pictures):
        image_size(resolve_image(root, name))
