"""Who is at work in a run folder: one driver that has it to itself, or any number of processes that share it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sightline.errors import SightlineError
from sightline.store.holders import here
from sightline.store.leases import LOOK, Held, Lease, Leases

DRIVER, MEMBER, OPENING, BOXES = "driver", "member-", "opening", "boxes"
"""Names of leases: of the one driver, of each process that shares, of short turns."""
ENDING = 20.0
"""Seconds that workers whose driver is gone may take to give back what they have begun."""


class Attendance:
    """Of this process in one run folder. Leaving releases whatever it holds."""

    def __init__(self, folder: Path, timeout: float) -> None:
        self.folder, self.leases = folder, Leases(folder, timeout)
        self._own: Lease | None = None

    def others(self) -> list[Held]:
        """Who else is at work and lives; what the dead left of themselves is removed."""
        found = []
        for name, generation in self.leases.listed().items():
            if (name == DRIVER or name.startswith(MEMBER)) and (self._own is None or name != self._own.name):
                held = self.leases.living(name)
                if held is not None:
                    found.append(held)
                elif name != DRIVER:  # whose place the next driver takes
                    self.leases.clear(name, generation)
        return found

    def refuse_others(self) -> None:
        """One line that says who is at work, for a driver that would have the folder to itself."""
        others = self.others()
        ends = time.monotonic() + ENDING
        while others and self._driver_died() and time.monotonic() < ends:
            time.sleep(LOOK)
            others = self.others()
        if others:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            raise SightlineError(
                f"{self.folder} is being written by {others[0]}{more}; wait for its end, or join it with "
                "--launcher queue"
            )

    def _driver_died(self) -> bool:
        """Whether a driver left its lease behind: its workers see that too, and end."""
        return DRIVER in self.leases.listed() and self.leases.living(DRIVER) is None

    def opening(self) -> AbstractContextManager[None]:
        """A turn alone among all that open the folder, for as long as that takes."""
        return self.leases.turn(OPENING)

    def drive(self) -> None:
        """Within ``opening``: takes the folder for this process, or refuses."""
        self.refuse_others()
        self._own = self.leases.claim(DRIVER)
        if self._own is None:
            self.refuse_others()
            raise SightlineError(f"{self.folder} is being written by another process; run the command again")

    def join(self) -> bool:
        """Within ``opening``: becomes one of those that share the folder; whether nobody else is at work."""
        alone = not self.others()
        self._own = self.leases.claim(f"{MEMBER}{here().token}")
        return alone

    def refuse_loss(self) -> None:
        """Ends a driver whose folder another one took over while it was silent."""
        if self._own is not None and self._own.lost and self._own.name == DRIVER:
            raise SightlineError(
                f"another process took over {self.folder}, since this one gave no sign of life for "
                f"{self.leases.timeout:g} s; what it finished is kept"
            )

    @contextmanager
    def attending(self) -> Iterator[Attendance]:
        try:
            yield self
        finally:
            self.leases.close()
