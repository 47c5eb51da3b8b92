"""What a launcher is: something that sees to it that a job ends up as files of a run folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sightline.arms.arm import ArmPlan
from sightline.auditing.config import AuditConfig
from sightline.auditing.shards import Shard
from sightline.core.registry import Registry
from sightline.probes import ProbeSet
from sightline.probes.probe_file import probes_text
from sightline.store import RunFolder


@dataclass(frozen=True)
class Job:
    """An audit whose input has been read and checked: everything that a launcher needs to know."""

    config: AuditConfig
    folder: RunFolder
    recorded: Mapping[str, Any]
    """The folder's manifest; empty for a new run."""
    plan: ArmPlan
    probes: ProbeSet
    shards: list[Shard]
    sizes: Mapping[str, tuple[int, int]]
    """(width, height) of every image by name."""
    bad: Mapping[str, str]
    """Images that are known to be unreadable, with the reason; empty unless they are to be skipped."""
    imports: Mapping[str, str]
    """Digests of imported files, by name."""

    @property
    def own_shards(self) -> list[Shard]:
        """Those that this command computes: all, or every N-th of a part."""
        first, step = self.config.share or (1, 1)
        return self.shards[first - 1 :: step]


def probe_bytes(probes: ProbeSet, shards: Sequence[Shard]) -> bytes:
    """The audited probes as a probe file of their own, for the run folder."""
    chosen = replace(probes, probes=tuple(probe for shard in shards for probe in shard.probes))
    return probes_text(chosen).encode()


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
    def launch(self, job: Job) -> None:
        """Returns when all of the job is in the folder, or set aside there with the reason."""
