"""Probes grouped by image into shards: the unit of encoding, writing and resuming."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from sightline.arms.arm import Arm
from sightline.boxes.beside import BoxesBeside
from sightline.boxes.sources import Shown
from sightline.core.prefix import Encoded
from sightline.core.probe import ORIGINAL, Box, Probe
from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.geometry.coverage import RegionGeometry
from sightline.interventions import Intervention
from sightline.places import Place, StoreError, is_remote
from sightline.probes.image_name import check_image_name, resolve_image
from sightline.probes.images import open_image, size_from_header

if TYPE_CHECKING:
    from sightline.store import RunFolder

REQUESTS = 16
"""Images of a URL whose headers are fetched at the same time."""


@dataclass(frozen=True)
class Shard:
    """Consecutive images with all their probes."""

    index: int
    probes: tuple[Probe, ...]
    images: tuple[Probe, ...]
    """One probe per distinct image, to say which file to open and what to occlude."""
    view: str = ORIGINAL
    """Which version of the images this is; every version of a shard has the same index."""
    image_budget: Budget | None = None
    """What the images are made small enough for; None: they have their usual size."""

    @property
    def version(self) -> str:
        """What records of these images are filed under: what they show, and how small they were made to show it."""
        if self.image_budget is None:
            return self.view
        return f"{'' if self.view == ORIGINAL else f'{self.view}-'}fit-{self.image_budget}"

    def mapped(self, change: Callable[[Probe], Probe], view: str = ORIGINAL) -> Shard:
        """The shard with every probe changed, and the images that the changed probes are about."""
        probes = tuple(change(probe) for probe in self.probes)
        first = {image_key(probe): probe for probe in reversed(probes)}
        ordered = dict.fromkeys(image_key(probe) for probe in probes)
        return replace(self, probes=probes, images=tuple(first[key] for key in ordered), view=view)

    def without(self, names: Container[str]) -> Shard:
        """The shard less the images of these names, with all their probes."""
        return replace(
            self,
            probes=tuple(probe for probe in self.probes if probe.image not in names),
            images=tuple(probe for probe in self.images if probe.image not in names),
        )

    def under(self, intervention: Intervention | None) -> Shard:
        """The shard's questions about the images as an intervention shows them."""
        if intervention is None or intervention.view == ORIGINAL:
            return self
        return self.mapped(intervention.seen, intervention.view)

    def seen_by(self, arm: Arm) -> Shard:
        """The shard's questions about the images that the arm looks at, in the size it looks at them."""
        return replace(self.under(arm.intervention), image_budget=arm.image_budget)


@dataclass(frozen=True)
class Task:
    """Arms that look at the same version of a shard's images: what is done in one go, and what a launcher hands out."""

    shard: Shard
    arms: tuple[Arm, ...]

    @property
    def rows(self) -> int:
        return len(self.shard.probes) * len(self.arms)


def image_key(probe: Probe, image_budget: Budget | None = None) -> str:
    """What distinguishes one encoded image from another: the file, the boxes painted over, what it was made to fit."""
    painted = f"#{sha256(repr(probe.occlude).encode()).hexdigest()[:12]}" if probe.occlude else ""
    return f"{probe.image}{painted}" if image_budget is None else f"{probe.image}{painted}#fit={image_budget}"


def make_shards(probes: Sequence[Probe], images_per_shard: int, limit: int | None = None) -> list[Shard]:
    """Shards in order of first appearance of each image; an image's probes are never separated."""
    groups: dict[str, list[Probe]] = {}
    for probe in probes:
        groups.setdefault(image_key(probe), []).append(probe)
    keys = list(groups)[:limit]
    if not keys:
        raise SightlineError("the probe file holds no probes")
    shards: list[Shard] = []
    for start in range(0, len(keys), images_per_shard):
        members = keys[start : start + images_per_shard]
        shards.append(
            Shard(
                index=len(shards),
                probes=tuple(probe for key in members for probe in groups[key]),
                images=tuple(groups[key][0] for key in members),
            )
        )
    return shards


def region_geometries(probes: Sequence[Probe], encoded: Sequence[Encoded]) -> list[RegionGeometry | None]:
    """Cell-region arithmetic once per image and region set, for all arms; None for a probe without regions."""
    known: dict[tuple[str, tuple[Box, ...]], RegionGeometry] = {}
    geometries: list[RegionGeometry | None] = []
    for probe, image in zip(probes, encoded, strict=True):
        key = (image_key(probe), probe.regions)
        if probe.regions and key not in known:
            known[key] = RegionGeometry(image.cells, probe.regions, sampling=image.sampling)
        geometries.append(known.get(key))
    return geometries


def tasks_left(folder: RunFolder, shards: Sequence[Shard], arms: Sequence[Arm]) -> list[Task]:
    """What is not on disk yet."""
    tasks = []
    for shard in shards:
        missing = [arm for arm in arms if not folder.has_rows(arm.text, shard.index)]
        tasks += [Task(shard.seen_by(alike[0]), alike) for alike in by_image(missing)]
    return tasks


def by_image(arms: Iterable[Arm]) -> list[tuple[Arm, ...]]:
    """Arms that look at the same version of an image, in the same size, together."""
    alike: dict[tuple[str, Budget | None], list[Arm]] = {}
    for arm in arms:
        alike.setdefault((arm.view, arm.image_budget), []).append(arm)
    return [tuple(group) for group in alike.values()]


def with_boxes(shards: Sequence[Shard], boxes: BoxesBeside) -> tuple[list[Shard], Shown]:
    """The shards with the boxes of a box source on every probe, and what those boxes are like."""
    shown = boxes.shown([probe for shard in shards for probe in shard.probes])
    boxed = {(probe.id, probe.view): probe for probe in shown.probes}
    return [shard.mapped(lambda probe: boxed[probe.id, probe.view], shard.view) for shard in shards], shown


def looked_at(
    root: Place, shards: Sequence[Shard], *, decode: bool
) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
    """(width, height) of every image by name, and the reason for each that is missing, cannot be opened or is a bomb.

    Before a model is loaded: headers are read; with ``decode`` every image is decoded too, which finds a damaged body.
    A name that leaves the root is no bad image but an error; so is a store that fails.
    """
    remote = is_remote(root)
    if not remote and not root.is_dir():
        raise SightlineError(f"image folder {root} does not exist")
    names = list(dict.fromkeys(probe.image for shard in shards for probe in shard.images))
    for name in names:
        check_image_name(name) if remote else resolve_image(root, name)
    # Decoders let other threads run, and most of the time of a request is waiting.
    with ThreadPoolExecutor(REQUESTS if remote else None) as pool:
        found = dict(zip(names, pool.map(lambda name: look(root, name, decode), names), strict=True))
    sizes = {name: seen for name, seen in found.items() if not isinstance(seen, str)}
    return sizes, {name: seen for name, seen in found.items() if isinstance(seen, str)}


def look(root: Place, name: str, decode: bool) -> tuple[int, int] | str:
    """An image's size, or why it cannot be used."""
    try:
        return open_image(root, name).size if decode else size_from_header(root, name)
    except StoreError:
        raise
    except SightlineError as error:
        return str(error)
