"""In this process, with a model of its own: alone in the run folder, or together with others."""

from __future__ import annotations

from typing import ClassVar

from sightline.auditing.audit import LAUNCHERS, Here


@LAUNCHERS.register("inline")
class Inline(Here):
    """Here, in this process: one worker, one task after the other. An arm that fails ends the command."""

    name: ClassVar[str] = "inline"
    shares: ClassVar[bool] = False
    locks: ClassVar[bool] = True


@LAUNCHERS.register("queue")
class Queue(Here):
    """Here, together with every other command on the same run folder, on this machine or on others that see it."""

    name: ClassVar[str] = "queue"
    locks: ClassVar[bool] = False
