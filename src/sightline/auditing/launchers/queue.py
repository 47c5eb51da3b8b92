from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sightline.auditing.launchers.base import LAUNCHERS
from sightline.auditing.launchers.here import Here
from sightline.auditing.shards import Task, longest_first
from sightline.boxes.beside import BoxesBeside
from sightline.store import RunFolder


@LAUNCHERS.register("queue")
class Queue(Here):
    """Here, together with every other command on the same run folder, on this machine or on others that see it."""

    name: ClassVar[str] = "queue"
    forgiving: ClassVar[bool] = True

    def attend(self) -> bool:
        return self._attendance.join()

    def run(self, folder: RunFolder, tasks: Sequence[Task], boxes: BoxesBeside) -> None:
        super().run(folder, longest_first(tasks), boxes)
