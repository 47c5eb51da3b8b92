"""An audit whose input has been read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sightline.arms.plan import ArmPlan
from sightline.auditing.config import AuditConfig
from sightline.auditing.shards import Shard
from sightline.probes import ProbeSet
from sightline.probes.probe_file import probes_text
from sightline.store import RunFolder


@dataclass(frozen=True)
class Job:
    """Everything that a launcher needs to know, before any model is loaded."""

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


def probe_bytes(probes: ProbeSet, shards: Sequence[Shard]) -> bytes:
    """The audited probes as a probe file of their own, for the run folder."""
    chosen = replace(probes, probes=tuple(probe for shard in shards for probe in shard.probes))
    return probes_text(chosen).encode()
