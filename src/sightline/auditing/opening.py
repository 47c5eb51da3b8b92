"""Opening a run folder for work: what may change under it, and who else is at work there."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from sightline.arms.arm import Arm, recorded_arm
from sightline.auditing.launchers.base import Job, probe_bytes
from sightline.auditing.shards import Task, lacks_images, look, tasks_left
from sightline.core.registry import imported_digest
from sightline.device.pulse import last_move, moved
from sightline.errors import SightlineError
from sightline.places import Place, is_remote
from sightline.places.holders import here
from sightline.places.writing import gone, remove_leftovers
from sightline.probes.images import image_digests
from sightline.progress import say
from sightline.store import RunFolder
from sightline.store.folder import MANIFEST
from sightline.store.leases import Held, Lease, Leases
from sightline.store.verify import damaged_files

# Opening a run folder for a job: what may go on, what is left to do. One process at a time does it.


def begin_alone(job: Job) -> None:
    """What a new command mends in a folder that nobody else works in: what failed, or could not be read, is tried
    again, and what was left half-written goes."""
    if not job.folder.exists:
        return
    job.folder.forgive(arm.text for arm in job.plan.arms)
    job.folder.forget_shards_of(mended_images(job))
    remove_leftovers(job.folder.path, alone=True)


def open_for(job: Job, settings: Mapping[str, Any], box_facts: Mapping[str, Any], *, alone: bool) -> list[Task]:
    """Creates, resumes or amends the folder; what is left to do in it.

    ``alone``: nobody else is at work in it. ``box_facts`` are left as they are where a detector's are known already.
    """
    folder, plan = job.folder, job.plan
    recorded = folder.manifest() if folder.exists else {}
    digests = input_digests(plan.arms)
    names = folder.open(
        {
            **settings,
            "probe_digest": job.probes.digest,
            "shards": len(job.shards),
            "part": recorded_part(job),
            "boxes": dict(box_facts or recorded.get("boxes", {})),
            "matched_controls": list(dict.fromkeys([*recorded.get("matched_controls", []), *plan.controls])),
            "imports": {**recorded.get("imports", {}), **job.imports},
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        },
        [arm.text for arm in plan.arms],
        probe_bytes(job.probes, job.shards),
        alone=alone,
        accept=job.config.accept_change,
    )
    set_damaged_aside(folder, names)
    resumed = list(resumable(job, recorded, names))
    tasks = tasks_left(folder, job.own_shards, [*resumed, *plan.arms])
    folder.settle_inputs({**digests, **input_digests(resumed)})
    return tasks


def set_damaged_aside(folder: RunFolder, arms: Sequence[str]) -> None:
    """A file that is not what was written, or that belongs to another run, is computed again instead of kept.

    A store is not asked for the footer of every object: what it holds was put whole, and rows are compared when read.
    """
    if is_remote(folder.path):
        return
    for problem in damaged_files(folder, arms):
        aside = problem.set_aside()
        if aside is not None:
            say(f"note: {problem.words}; set aside as {aside.name}", err=True)


def recorded_part(job: Job) -> list[int] | None:
    """Which part of the run the folder holds; None for all of it, and for more than one."""
    share = None if job.config.share is None else list(job.config.share)
    return share if not job.recorded or job.recorded.get("part") == share else None


def mended_images(job: Job) -> list[str]:
    """Images that an earlier command could not read and that can be read now.

    A whole file that the model's own code failed on has to be another one: the same code would fail again.
    """
    recorded = job.recorded.get("bad_images", {})
    readable = [name for name in recorded if not isinstance(look(job.config.images, name, decode=True), str)]
    digests = image_digests(job.config.images, [name for name in readable if "digest" in recorded[name]])
    return [name for name in readable if name not in digests or digests[name] != recorded[name]["digest"]]


def resumable(job: Job, recorded: Mapping[str, Any], names: Sequence[str]) -> Iterator[Arm]:
    """Unfinished arms of earlier commands under the same folder: a killed amendment leaves no holes.

    One that failed, or that has no row and cannot be understood any more, is left out, with a note.
    """
    planned = {arm.text for arm in job.plan.arms}
    for failed, reason in recorded.get("set_aside", {}).items():
        if failed not in planned:
            _note_left_out(failed, reason)
    for name in names:
        if name in planned:
            continue
        complete = job.folder.finished_shards(name).issuperset(shard.index for shard in job.own_shards)
        try:
            arm = recorded_arm(name)
            if not complete or lacks_images(job.folder, job.own_shards, arm):
                yield arm
        except SightlineError as error:
            if complete:
                continue
            if job.folder.any_rows(name):
                needed = ", ".join(f"--import {file}" for file in recorded.get("imports", {}))
                raise SightlineError(f"{error} (the run was made with {needed})" if needed else str(error)) from error
            job.folder.leave_out(name, str(error))
            _note_left_out(name, str(error))


def _note_left_out(arm: str, reason: str) -> None:
    say(f"note: {arm} of an earlier command is left out: {reason}", err=True)


def input_digests(arms: Iterable[Arm]) -> dict[str, str]:
    """Of the arms that read a file, such as replayed masks, or whose selector or policy comes from an imported one."""
    digests = {
        arm.text: arm.input_digest() or imported_digest(type(arm.selector)) or imported_digest(type(arm.policy))
        for arm in arms
    }
    return {text: digest for text, digest in digests.items() if digest is not None}


# Who is at work in a run folder: one driver that has it to itself, or any number of processes that share it.

DRIVER, MEMBER, OPENING, BOXES = "driver", "member-", "opening", "boxes"
"""Names of leases: of the one driver, of each process that shares, of short turns."""
ENDING = 20.0
"""Seconds that workers whose driver is gone may take to give back what they have begun."""


class Attendance:
    """Of this process in one run folder. Leaving releases whatever it holds."""

    def __init__(self, folder: Place, timeout: float, standstill: float = math.inf) -> None:
        self.folder = folder
        self.leases = Leases(folder, timeout, standstill=standstill, moved=last_move)
        self.leases.look_around(_of_a_process)
        self._own: Lease | None = None

    def somebody_else(self) -> Held | None:
        """One who is at work and lives, if there is any; what the dead left of themselves is removed.

        Waits for a sign of life only where there is nothing but a lease of another machine, as old as this object.
        """
        unknown = self._others()
        while unknown:
            for name, generation in list(unknown.items()):
                living = self.leases.is_living(name, generation)
                if living:
                    return self.leases.look(name, generation) or Held(None)
                if living is False:
                    del unknown[name]
                    if name != DRIVER:  # whose place the next driver takes
                        self.leases.clear(name, generation)
            if unknown:
                time.sleep(self.leases.pause)
        return None

    def _others(self) -> dict[str, int]:
        own = self._own.name if self._own is not None else ""
        return {name: number for name, number in self.leases.listed().items() if _of_a_process(name) and name != own}

    def refuse_others(self) -> None:
        """One line that says who is at work, for a driver that would have the folder to itself."""
        ends = time.monotonic() + ENDING
        other = self.somebody_else()
        while other is not None and self._driver_died() and time.monotonic() < ends:
            time.sleep(self.leases.pause)
            other = self.somebody_else()
        if other is not None:
            more = len(self._others()) - 1
            raise SightlineError(
                f"{self.folder} is being written by {other}{f' and {more} more' if more else ''}; wait for its end, or "
                "join it with --launcher queue"
            )

    def _driver_died(self) -> bool:
        """Whether a driver left its lease behind: its workers see that too, and end."""
        generation = self._others().get(DRIVER, 0)
        return bool(generation) and self.leases.is_living(DRIVER, generation) is False

    def opening(self) -> AbstractContextManager[None]:
        """A turn alone among all that open the folder, for as long as that takes."""
        moved()  # whatever came before, such as loading a model, is behind this process
        return self.leases.turn(OPENING)

    def drive(self) -> None:
        """Within ``opening``: takes the folder for this process, or refuses."""
        self.refuse_others()
        self._own = self.leases.claim(DRIVER)
        if self._own is None:
            self.refuse_others()
            raise SightlineError(f"{self.folder} is being written by another process; run the command again")

    def join(self) -> bool:
        """Within ``opening``: becomes one of those that share the folder; whether nobody else is at work."""
        alone = self.somebody_else() is None
        self._own = self.leases.claim(f"{MEMBER}{here().token}")
        return alone

    @property
    def alone(self) -> bool:
        """Whether this process has the folder to itself."""
        return self._own is not None and self._own.name == DRIVER and not self._own.lost

    def opened(self) -> None:
        """From now on there is a run in the folder: where it is no more, somebody took it away."""
        self.leases.opened = True

    def refuse_loss(self) -> None:
        """Ends a process whose folder is gone, and a driver whose folder another one took over while it was silent."""
        if self.leases.opened and not is_remote(self.folder) and not (self.folder / MANIFEST).is_file():
            raise SightlineError(gone(self.folder))
        if self._own is not None and self._own.lost and self._own.name == DRIVER:
            raise SightlineError(
                f"another process took over {self.folder}, since this one gave no sign of life for "
                f"{self.leases.timeout:g} s; what it finished is kept"
            )

    @contextmanager
    def attending(self) -> Iterator[Attendance]:
        try:
            yield self
        finally:
            self.leases.close()


def _of_a_process(name: str) -> bool:
    """Whether a lease says that a process is at work, whatever on."""
    return name == DRIVER or name.startswith(MEMBER)


@contextmanager
def alone_in(*folders: Place, timeout: float = 60.0) -> Iterator[None]:
    """Within it nobody else is at work in some run folders; refused where somebody is."""
    with ExitStack() as held:
        for folder in folders:
            attendance = held.enter_context(Attendance(folder, timeout).attending())
            with attendance.opening():
                attendance.drive()
        yield
