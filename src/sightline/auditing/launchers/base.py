"""What a launcher is: something that sees to it that a job ends up as files of a run folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from sightline.auditing.config import AuditConfig
from sightline.auditing.job import Job
from sightline.core.registry import Registry

LAUNCHERS: Registry[type[Launcher]] = Registry(
    "launcher", group="sightline.launchers", package="sightline.auditing.launchers"
)
"""By name. ``@LAUNCHERS.register("name")`` above a class is all that a new one needs."""


class Launcher(ABC):
    """The run folder is the only truth: work is done when its files are there, whoever wrote them.

    Rows must not depend on the launcher.
    """

    name: ClassVar[str]
    shares: ClassVar[bool] = True
    """Whether several processes may work in one run folder, for which a store must create an object once."""

    def __init__(self, config: AuditConfig) -> None:
        self.config = config

    def refuse_unusable(self) -> None:
        """Refuses what is missing on this machine, before anything is loaded."""
        return None

    @abstractmethod
    def carry_out(self, job: Job) -> None:
        """Returns when all of the job is in the folder, or set aside there with the reason."""
