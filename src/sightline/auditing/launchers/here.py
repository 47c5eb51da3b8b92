"""What launchers have in common whose model is loaded in this process."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar

from sightline.arms.arm import Arm
from sightline.auditing.launchers.base import LAUNCHERS, Job, Launcher, probe_bytes
from sightline.auditing.opening import BOXES, Attendance, begin_alone, open_for
from sightline.auditing.pulling import Pull
from sightline.auditing.shards import Task, longest_first, with_boxes
from sightline.auditing.worker import Worker
from sightline.boxes.sources import BoxesBeside
from sightline.errors import SightlineError
from sightline.store import RunFolder


class Here(Launcher, AbstractContextManager["Here"]):
    """One worker in this process. As a context it brings up the model alone, for whoever only asks what it serves."""

    forgiving: ClassVar[bool]
    """Whether work that fails is set aside while the rest goes on; otherwise it ends the command."""
    _worker: Worker
    _attendance: Attendance

    def __enter__(self) -> Here:
        self._worker = Worker(self.config)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def refuse_unusable(self) -> None:
        if self.config.workers != "auto":
            raise SightlineError(f"--workers is for --launcher local and ray; {self.name} is one process")

    @abstractmethod
    def attend(self) -> bool:
        """Within the turn of opening: takes a place in the folder, or refuses; whether nobody else is at work there."""

    def refuse_early(self) -> None:
        """Refuses before a model is loaded what ``attend`` would refuse then."""
        return None

    def refuse_unserved(self, arms: Sequence[Arm], sizes: Mapping[str, tuple[int, int]]) -> None:
        """Refuses by name what the model cannot serve, before the folder is opened.

        ``sizes`` is the (width, height) of every image by name: not every image can be made to fit every budget.
        """
        self._worker.refuse_unserved(arms, sizes)

    def carry_out(self, job: Job) -> None:
        attendance = self._attendance = Attendance(job.folder.path, self.config.worker_timeout, self.config.standstill)
        readable = [shard.without(job.bad) for shard in job.shards]
        asked = [probe for shard in readable for probe in shard.probes]
        with attendance.attending():
            if job.folder.exists:
                self.refuse_early()
            with BoxesBeside(self.config.box_source, self.config.images, asked, self._turn_to_search) as boxes:
                if not boxes.detects:
                    shards, shown = with_boxes(job.shards, boxes)
                    self._work(replace(job, shards=shards), boxes, shown.facts)
                    return
                self._work(job, boxes, {})
                _, shown = with_boxes(readable, boxes)  # what the boxes are like is known when all have been found
                boxed = {(probe.id, probe.view): probe for probe in shown.probes}
                shards = [shard.mapped(lambda probe: boxed.get((probe.id, probe.view), probe)) for shard in job.shards]
                with attendance.opening():
                    job.folder.describe_boxes(shown.facts, probe_bytes(job.probes, shards))

    def _turn_to_search(self, given_up: Any) -> AbstractContextManager[None]:
        """Several that share a folder search one after the other: all but the first find what is remembered."""
        return self._attendance.leases.turn(BOXES, given_up)

    def _work(self, job: Job, boxes: BoxesBeside, box_facts: Mapping[str, Any]) -> None:
        """Brings up the model, opens the folder and does what is left, while a text detector may be at work beside."""
        with self:
            self.refuse_unserved(job.plan.arms, job.sizes)
            with self._attendance.opening():
                alone = self.attend()
                job.folder.files.refresh()
                if alone:
                    begin_alone(job)
                recorded = job.folder.manifest() if job.folder.exists else {}
                tasks = open_for(job, self._worker.settings(recorded), box_facts, alone=alone)
                self._attendance.opened()
            self.run(job.folder, tasks, boxes)

    def run(self, folder: RunFolder, tasks: Sequence[Task], boxes: BoxesBeside) -> None:
        """Returns when every task is in the folder, or set aside there."""
        self._worker.work(folder, Pull(folder, tasks, self._attendance, forgiving=self.forgiving), boxes)


@LAUNCHERS.register("inline")
class Inline(Here):
    """Here, in this process: one worker, one task after the other. An arm that fails ends the command."""

    name: ClassVar[str] = "inline"
    shares: ClassVar[bool] = False
    forgiving: ClassVar[bool] = False

    def refuse_early(self) -> None:
        self._attendance.refuse_others()

    def attend(self) -> bool:
        self._attendance.drive()
        return True


@LAUNCHERS.register("queue")
class Queue(Here):
    """Here, together with every other command on the same run folder, on this machine or on others that see it."""

    name: ClassVar[str] = "queue"
    forgiving: ClassVar[bool] = True

    def attend(self) -> bool:
        return self._attendance.join()

    def run(self, folder: RunFolder, tasks: Sequence[Task], boxes: BoxesBeside) -> None:
        super().run(folder, longest_first(tasks), boxes)
