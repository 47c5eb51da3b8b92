"""In this process, with a model of its own: alone in the run folder, or together with others."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar

from sightline.arms.arm import Arm
from sightline.auditing.audit import Here, compute_rows
from sightline.auditing.launchers.base import LAUNCHERS
from sightline.auditing.shards import Task, longest_first
from sightline.auditing.sharing import PAUSE, SharedTasks
from sightline.boxes.sources import BoxesBeside
from sightline.device import moved
from sightline.progress import Progress
from sightline.store import RunFolder
from sightline.store.leases import MEMBER, FolderAccess


@LAUNCHERS.register("inline")
class Inline(Here):
    """Here, in this process: one worker, one task after the other. An arm that fails ends the command."""

    name: ClassVar[str] = "inline"
    shares: ClassVar[bool] = False
    locks: ClassVar[bool] = True

    def run(self, folder: RunFolder, tasks: Sequence[Task], boxes: BoxesBeside) -> None:
        compute_rows(self.worker, folder, OwnTasks(folder, tasks, self.access), boxes)


@LAUNCHERS.register("queue")
class Queue(Here):
    """Here, together with every other command on the same run folder, on this machine or on others that see it."""

    name: ClassVar[str] = "queue"
    locks: ClassVar[bool] = False

    def run(self, folder: RunFolder, tasks: Sequence[Task], boxes: BoxesBeside) -> None:
        compute_rows(self.worker, folder, SharedTasks(folder, longest_first(tasks), self.access), boxes)


class OwnTasks:
    """The tasks of a process that has locked the folder: a list, from its first to its last. Nothing is claimed.

    As soon as somebody joins (``--launcher queue``), the rest of the list is shared.
    """

    def __init__(self, folder: RunFolder, tasks: Sequence[Task], access: FolderAccess) -> None:
        self._folder, self._left, self._access = folder, deque(tasks), access
        self.arms = {arm.text for task in tasks for arm in task.arms}
        self.total = sum(task.rows for task in tasks)
        self.progress: Progress | None = None
        self._shared: SharedTasks | None = None
        self._next_look = time.monotonic() + PAUSE

    def ready(self) -> Iterator[Task]:
        while self._left and self._shared is None:
            self._access.check()
            moved()
            if self._joined():
                self._shared = SharedTasks(self._folder, list(self._left), self._access)
                self._shared.total, self._shared.progress = self.total, self.progress
            else:
                yield self._left.popleft()
        if self._shared is not None:
            yield from self._shared.ready()

    def _joined(self) -> bool:
        """Whether somebody came to share the folder, looked up now and then."""
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + PAUSE
        return any(name.startswith(MEMBER) for name in self._access.others())

    def wait(self) -> bool:
        return self._shared is not None and self._shared.wait()

    def wrote(self, task: Task, arm: Arm) -> None:
        moved()
        if self._shared is not None:
            self._shared.wrote(task, arm)

    def fail(self, blamed: Collection[tuple[str, str]], error: Exception) -> bool:
        """Sets the arms aside for the next command, and ends this one."""
        reason = str(error) or type(error).__name__
        self._folder.set_aside({arm for _, arm in blamed if arm}, f"it failed ({reason}); name it to try again")
        return False

    def give_back(self) -> None:
        if self._shared is not None:
            self._shared.give_back()
