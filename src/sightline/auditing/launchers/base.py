"""What a launcher is: something that sees to it that tasks end up as files of a run folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, ClassVar

from sightline.arms.arm import Arm
from sightline.auditing.config import AuditConfig
from sightline.auditing.shards import Task
from sightline.boxes.beside import BoxesBeside
from sightline.core.registry import Registry
from sightline.store import RunFolder

LAUNCHERS: Registry[type[Launcher]] = Registry(
    "launcher", group="sightline.launchers", package="sightline.auditing.launchers"
)
"""By name. ``@LAUNCHERS.register("name")`` above a class is all that a new one needs."""


class Launcher(AbstractContextManager["Launcher"], ABC):
    """Used as a context: entering brings up whatever runs the work, leaving takes it down.

    The run folder is the only truth: a task is done when its files are there, whoever wrote them. Rows must not depend
    on the launcher.
    """

    name: ClassVar[str]

    def __init__(self, config: AuditConfig) -> None:
        self.config = config

    @abstractmethod
    def settings(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """What the run folder has to agree with: the contract of the model that was brought up.

        ``recorded`` is the folder's manifest, empty for a new run.
        """

    @abstractmethod
    def refuse_unserved(self, arms: Sequence[Arm], sizes: Mapping[str, tuple[int, int]]) -> None:
        """Refuses by name what the model cannot serve, before the folder is opened.

        ``sizes`` is the (width, height) of every image by name: not every image can be made to fit every budget.
        """

    @abstractmethod
    def run(self, folder: RunFolder, tasks: Sequence[Task], boxes: BoxesBeside) -> None:
        """Returns when every task is in the folder."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
