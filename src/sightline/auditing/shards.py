"""Probes grouped by image into shards, the unit of encoding, writing and resuming; and how processes share them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256

from sightline.arms.arm import Arm
from sightline.boxes.sources import BoxesBeside, Shown
from sightline.core.prefix import Encoded
from sightline.core.probe import ORIGINAL, Box, Probe
from sightline.core.row import cut_shards
from sightline.core.selection import Budget
from sightline.device import moved
from sightline.device.work import is_out_of_memory
from sightline.errors import SightlineError
from sightline.geometry.coverage import RegionGeometry
from sightline.interventions import Intervention
from sightline.places.listing import Place, StoreError, is_remote
from sightline.probes.fetched_images import check_image_name, resolve_image
from sightline.probes.images import open_image, size_from_header
from sightline.progress import Progress
from sightline.store.folder import RunFolder
from sightline.store.leases import BEATS, FolderAccess, Held, Lease
from sightline.store.manifest import Failure

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


# How several processes share the tasks of a run: whoever has time takes the next that nobody has, until all are done.
#
# The run folder is the only truth. A task is done when its rows are there; who is at it, leases say; what went wrong
# with it, notes. So two processes or a hundred, here or elsewhere, begun together or one after the other, do the same.
# A process that has the folder to itself does not come this way.

PAUSE = 0.5
"""Seconds between two looks at work that others have."""
SHARE = 0.05
"""The most of its time that a process looks at what others have done."""


@dataclass
class _Claim:
    lease: Lease
    left: set[str]
    """Arms whose rows are still to be written."""


def is_known(error: Exception) -> bool:
    """Whether an error leaves the process as it was: a sentence for the user, or no memory."""
    return isinstance(error, SightlineError) or is_out_of_memory(error)


class SharedTasks:
    """Tasks for one process out of those that all share. Work that fails is tried once more, by anyone, and then set
    aside."""

    def __init__(self, folder: RunFolder, tasks: Sequence[Task], access: FolderAccess) -> None:
        self._folder, self._access, self._leases = folder, access, access.leases
        self._left = list(tasks)
        self.arms = {arm.text for task in tasks for arm in task.arms}
        self.total = sum(task.rows for task in tasks)
        done = {arm: folder.finished_shards(arm) for arm in self.arms}
        recorded = folder.recorded_images()
        # Their rows are there, and records of their images are gone.
        self._restored = {
            task.key
            for task in tasks
            if (task.shard.index, task.shard.version) not in recorded
            and all(task.shard.index in done[arm.text] for arm in task.arms)
        }
        self._claims: dict[str, _Claim] = {}
        self._next_update, self._next_round = 0.0, 0.0
        self.progress: Progress | None = None

    def ready(self) -> Iterator[Task]:
        """What can be had without waiting, claimed when it is asked for.

        Whoever asks works one task ahead. That is left off when no more is free than others are at work: a task that
        waits in one process could be under way in another.
        """
        task = self._take(ahead=False)
        while task is not None:
            yield task
            task = self._take(ahead=True)

    def wait(self) -> bool:
        """Until there is something to take; False when all is in the folder or set aside."""
        while True:
            self._update(at_once=True)
            if not self._left:
                return False
            listed = self._leases.listed()
            if any(not listed.get(task.key) or self._leases.is_over(task.key, listed[task.key]) for task in self._left):
                return True
            moved()  # waiting for others is no standstill
            time.sleep(min(PAUSE, self._leases.timeout / BEATS))

    def wrote(self, task: Task, arm: Arm) -> None:
        """The rows of one arm of a claimed task are in the folder."""
        moved()
        self._restored.discard(task.key)
        claim = self._claims.get(task.key)
        if claim is None:
            return
        claim.left.discard(arm.text)
        if not claim.left:
            self._release(task.key)

    def fail(self, blamed: Collection[tuple[str, str]], error: Exception) -> bool:
        """Records what went wrong, gives back everything that was claimed and goes on: False where nobody is to blame.

        ``blamed`` are keys of tasks with an arm each, or "" for the images that all arms look at.
        """
        if not blamed:
            return False
        reason = str(error) or type(error).__name__
        if not is_known(error):
            reason = f"{type(error).__name__}: {reason}"
        for key in {key for key, _ in blamed}:
            arms = sorted(arm for blamed_key, arm in blamed if blamed_key == key and arm)
            claim = self._claims.get(key)
            whole = sorted(claim.left) if claim is not None else []
            self._folder.notes.add_failure(Failure(key, tuple(arms or whole), reason, lost=False))
        self.give_back()
        return True

    def give_back(self) -> None:
        for key in list(self._claims):
            self._release(key)

    def _release(self, key: str) -> None:
        self._leases.release(self._claims.pop(key).lease)

    def _take(self, *, ahead: bool) -> Task | None:
        self._access.check()
        moved()
        self._update()
        listed = self._leases.listed()
        mine = self._claims
        free = [task for task in self._left if task.key not in listed and task.key not in mine]
        elsewhere = [task for task in self._left if task.key in listed and task.key not in mine]
        if ahead and len(free) <= len(elsewhere):
            return None
        for task in (*free, *(elsewhere if self._may_take_over(free) else ())):
            if (taken := self._claimed(task, listed.get(task.key, 0))) is not None:
                return taken
        return None

    def _may_take_over(self, free: Sequence[Task]) -> bool:
        """Whether to look at others' leases, which are files to be read: now and then, and when nothing else is left.

        Looking early starts the clock by which a silent holder is given up.
        """
        now = time.monotonic()
        if free and now < self._next_round:
            return False
        self._next_round = now + self._leases.timeout / BEATS
        return True

    def _claimed(self, task: Task, generation: int) -> Task | None:
        wanted = self._missing(task)
        lease = self._leases.claim(task.key, generation, [arm.text for arm in wanted]) if wanted else None
        if lease is None:
            return None
        if lease.taken_from is not None:
            self._note_loss(task, lease.taken_from)
        self._folder.files.refresh()  # others write too: a store is asked anew, by one listing
        arms = self._missing(task)
        if {arm.text for arm in arms} - {arm.text for arm in wanted} or not arms:
            self._leases.release(lease)  # more went wrong, or was done, since: another look will tell
            return None
        self._leases.update_lease(lease, [arm.text for arm in arms])
        self._claims[task.key] = _Claim(lease, {arm.text for arm in arms})
        return Task(task.shard, arms)

    def _note_loss(self, task: Task, lost: Held) -> None:
        """Whoever had the task did not live to do it: what it was at, as far as that is not there."""
        left = [arm.text for arm in task.arms if not self._folder.has_rows(arm.text, task.shard.index)]
        arms = tuple(arm for arm in left if arm in lost.about) if lost.about else tuple(left)
        if arms:
            reason = f"{lost.holder or 'its process'} was lost"
            self._folder.notes.add_failure(Failure(task.key, arms, reason, lost=True))

    def _missing(self, task: Task) -> tuple[Arm, ...]:
        """Arms of a task that have no rows yet and are not set aside; of one that ended its worker a single one.

        One by one it shows which of them it is, and the others are done.
        """
        failures, index = self._folder.notes.failures(), task.shard.index
        arms = tuple(
            arm
            for arm in task.arms
            if (task.key in self._restored or not self._folder.has_rows(arm.text, index))
            and not failures.verdict(task.key, arm.text)
        )
        losses = {arm.text: failures.losses(task.key, arm.text) for arm in arms}
        return (min(arms, key=lambda arm: losses[arm.text]),) if any(losses.values()) else arms

    def _update(self, *, at_once: bool = False) -> None:
        """Leaves out what is done or set aside by now, whoever did it; what failed once comes last."""
        started = time.monotonic()
        if started < self._next_update and not (at_once and not self._claims):
            return
        self._folder.files.refresh()
        done = {arm: self._folder.finished_shards(arm) for arm in self.arms}
        failures = self._folder.notes.failures()

        def is_open(task: Task, arm: Arm) -> bool:
            there = task.shard.index in done[arm.text] and task.key not in self._restored
            return not there and not failures.verdict(task.key, arm.text)

        self._left = [task for task in self._left if any(is_open(task, arm) for arm in task.arms)]
        if failures:
            self._left.sort(key=lambda task: failures.times(task.key))
        if self.progress is not None:
            missing = sum(len(task.shard.probes) for task in self._left for arm in task.arms if is_open(task, arm))
            self.progress.reach(self.total - missing)
        took = time.monotonic() - started
        self._next_update = time.monotonic() + took / SHARE
