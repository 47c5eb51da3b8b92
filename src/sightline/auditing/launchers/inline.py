from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sightline.arms.arm import Arm
from sightline.auditing.launchers.base import LAUNCHERS, Launcher
from sightline.auditing.shards import Task
from sightline.auditing.worker import Worker
from sightline.boxes.beside import BoxesBeside
from sightline.store import RunFolder


@LAUNCHERS.register("inline")
class Inline(Launcher):
    """Here, in this process: one worker, one task after the other."""

    name: ClassVar[str] = "inline"
    _worker: Worker

    def __enter__(self) -> Inline:
        self._worker = Worker(self.config)
        return self

    def settings(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        return self._worker.settings(recorded)

    def refuse_unserved(self, arms: Sequence[Arm], sizes: Mapping[str, tuple[int, int]]) -> None:
        self._worker.refuse_unserved(arms, sizes)

    def run(self, folder: RunFolder, tasks: Sequence[Task], boxes: BoxesBeside) -> None:
        self._worker.work(folder, tasks, boxes)
