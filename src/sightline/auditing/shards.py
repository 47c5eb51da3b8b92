"""Probes grouped by image into shards: the unit of encoding, writing and resuming."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from sightline.arms.arm import Arm
from sightline.boxes.sources import BoxesBeside, Shown
from sightline.core.prefix import Encoded
from sightline.core.probe import ORIGINAL, Box, Probe
from sightline.core.row import cut_shards
from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.geometry.coverage import RegionGeometry
from sightline.interventions import Intervention
from sightline.places import Place, StoreError, is_remote
from sightline.probes.fetched_images import check_image_name, resolve_image
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

    def version_for(self, arm: Arm) -> str:
        """The version that an arm looks at."""
        return replace(self, view=arm.view, image_budget=arm.image_budget).version

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
    def key(self) -> str:
        """What it is called among whoever shares the work, whichever arms are left of it."""
        version = "" if self.shard.version == ORIGINAL else f".{re.sub(r'[^A-Za-z0-9.]+', '-', self.shard.version)}"
        return f"{self.shard.index:05d}{version}"

    @property
    def rows(self) -> int:
        return len(self.shard.probes) * len(self.arms)


def image_key(probe: Probe, image_budget: Budget | None = None) -> str:
    """What distinguishes one encoded image from another: the file, the boxes painted over, what it was made to fit."""
    painted = f"#{sha256(repr(probe.occlude).encode()).hexdigest()[:12]}" if probe.occlude else ""
    return f"{probe.image}{painted}" if image_budget is None else f"{probe.image}{painted}#fit={image_budget}"


def make_shards(
    probes: Sequence[Probe], images_per_shard: int, limit: int | None = None, probes_per_shard: int | None = None
) -> list[Shard]:
    """Shards in order of first appearance of each image, of at most so many images and probes.

    An image with more probes than a shard holds is encoded again for each of its shards.
    """
    groups: dict[str, list[Probe]] = {}
    for probe in probes:
        groups.setdefault(image_key(probe), []).append(probe)
    keys = list(groups)[:limit]
    if not keys:
        raise SightlineError("the probe file holds no probes")
    cuts = cut_shards((len(groups[key]) for key in keys), images_per_shard, probes_per_shard)
    return [
        Shard(
            index=index,
            probes=tuple(probe for part in cut for probe in groups[keys[part.image]][part.start : part.stop]),
            images=tuple(groups[keys[part.image]][part.start] for part in cut),
        )
        for index, cut in enumerate(cuts)
    ]


def region_geometries(probes: Sequence[Probe], encoded: Sequence[Encoded]) -> list[RegionGeometry | None]:
    """Cell-region arithmetic once per image and region set, for all arms; None for a probe without regions,
    or of a model without cells."""
    known: dict[tuple[str, tuple[Box, ...]], RegionGeometry] = {}
    geometries: list[RegionGeometry | None] = []
    for probe, image in zip(probes, encoded, strict=True):
        key = (image_key(probe), probe.regions)
        if probe.regions and image.placed and key not in known:
            known[key] = RegionGeometry(image.cells, probe.regions, sampling=image.sampling)
        geometries.append(known.get(key))
    return geometries


def tasks_left(folder: RunFolder, shards: Sequence[Shard], arms: Sequence[Arm]) -> list[Task]:
    """What is not on disk yet.

    Where rows are there and only the records of their images are gone, the first arm that looked at them does it again.
    """
    tasks = []
    finished = {arm.text: folder.finished_shards(arm.text) for arm in arms}
    recorded = folder.recorded_images()
    for shard in shards:
        for alike in by_image(arms):
            missing = tuple(arm for arm in alike if shard.index not in finished[arm.text])
            if not missing and (shard.index, shard.version_for(alike[0])) not in recorded:
                missing = alike[:1]
            tasks += [Task(shard.seen_by(alike[0]), missing)] if missing else []
    return tasks


def longest_first(tasks: Iterable[Task]) -> list[Task]:
    """So that several workers end at about the same time: what is short fills the gaps at the end."""
    return sorted(tasks, key=lambda task: task.rows, reverse=True)


def lacks_images(folder: RunFolder, shards: Iterable[Shard], arm: Arm) -> bool:
    """Whether records of some images that an arm looked at are gone."""
    recorded = folder.recorded_images()
    return any((shard.index, shard.version_for(arm)) not in recorded for shard in shards)


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


def check_images(
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
        found = dict(zip(names, pool.map(lambda name: check_image(root, name, decode), names), strict=True))
    sizes = {name: seen for name, seen in found.items() if not isinstance(seen, str)}
    return sizes, {name: seen for name, seen in found.items() if isinstance(seen, str)}


def check_image(root: Place, name: str, decode: bool) -> tuple[int, int] | str:
    """An image's size, or why it cannot be used."""
    try:
        return open_image(root, name).size if decode else size_from_header(root, name)
    except StoreError:
        raise
    except SightlineError as error:
        return str(error)
