"""How several processes share the tasks of a run: whoever has time takes the next that nobody has, until all are done.

The run folder is the only truth. A task is done when its rows are there; who is at it, leases say; what went wrong with
it, notes. So two processes or a hundred, here or elsewhere, begun together or one after the other, do the same. A
process that has the folder to itself does not come this way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from sightline.arms.arm import Arm
from sightline.auditing.shards import Task
from sightline.device import moved
from sightline.device.work import is_out_of_memory
from sightline.errors import SightlineError
from sightline.progress import Progress
from sightline.store import RunFolder
from sightline.store.leases import BEATS, FolderAccess, Held, Lease
from sightline.store.manifest import Failure

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

    def __init__(
        self,
        folder: RunFolder,
        tasks: Sequence[Task],
        access: FolderAccess,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
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
        self._clock = clock
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
            self._folder.record_failure(Failure(key, tuple(arms or whole), reason, lost=False))
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
        now = self._clock()
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
        self._leases.restate(lease, [arm.text for arm in arms])
        self._claims[task.key] = _Claim(lease, {arm.text for arm in arms})
        return Task(task.shard, arms)

    def _note_loss(self, task: Task, lost: Held) -> None:
        """Whoever had the task did not live to do it: what it was at, as far as that is not there."""
        left = [arm.text for arm in task.arms if not self._folder.has_rows(arm.text, task.shard.index)]
        arms = tuple(arm for arm in left if arm in lost.about) if lost.about else tuple(left)
        if arms:
            self._folder.record_failure(Failure(task.key, arms, f"{lost.holder or 'its process'} was lost", lost=True))

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
        started = self._clock()
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
        took = self._clock() - started
        self._next_update = self._clock() + took / SHARE
