"""The last shard first: where work runs, and in which order, must change no row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sightline.auditing.launchers.here import Inline
from sightline.auditing.shards import Task
from sightline.boxes.sources import BoxesBeside
from sightline.store.folder import RunFolder


class Backwards(Inline):
    """In this process, from the last task to the first."""

    name: ClassVar[str] = "backwards"

    def run(self, folder: RunFolder, tasks: Sequence[Task], boxes: BoxesBeside) -> None:
        super().run(folder, tasks[::-1], boxes)
