from __future__ import annotations

from typing import ClassVar

from sightline.auditing.launchers.base import LAUNCHERS
from sightline.auditing.launchers.here import Here


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
