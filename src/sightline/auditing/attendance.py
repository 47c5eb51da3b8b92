"""Who is at work in a run folder: one driver that has it to itself, or any number of processes that share it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from sightline.device.pulse import last_move, moved
from sightline.errors import SightlineError
from sightline.places import Place, is_remote
from sightline.places.holders import here
from sightline.places.writing import gone
from sightline.store.folder import MANIFEST
from sightline.store.leases import Held, Lease, Leases

DRIVER, MEMBER, OPENING, BOXES = "driver", "member-", "opening", "boxes"
"""Names of leases: of the one driver, of each process that shares, of short turns."""
ENDING = 20.0
"""Seconds that workers whose driver is gone may take to give back what they have begun."""


class Attendance:
    """Of this process in one run folder. Leaving releases whatever it holds."""

    def __init__(self, folder: Place, timeout: float, standstill: float = math.inf) -> None:
        self.folder = folder
        self.leases = Leases(folder, timeout, standstill=standstill, moved=last_move)
        self.leases.look_around(_of_a_process)
        self._own: Lease | None = None

    def somebody_else(self) -> Held | None:
        """One who is at work and lives, if there is any; what the dead left of themselves is removed.

        Waits for a sign of life only where there is nothing but a lease of another machine, as old as this object.
        """
        unknown = self._others()
        while unknown:
            for name, generation in list(unknown.items()):
                living = self.leases.is_living(name, generation)
                if living:
                    return self.leases.look(name, generation) or Held(None)
                if living is False:
                    del unknown[name]
                    if name != DRIVER:  # whose place the next driver takes
                        self.leases.clear(name, generation)
            if unknown:
                time.sleep(self.leases.pause)
        return None

    def _others(self) -> dict[str, int]:
        own = self._own.name if self._own is not None else ""
        return {name: number for name, number in self.leases.listed().items() if _of_a_process(name) and name != own}

    def refuse_others(self) -> None:
        """One line that says who is at work, for a driver that would have the folder to itself."""
        ends = time.monotonic() + ENDING
        other = self.somebody_else()
        while other is not None and self._driver_died() and time.monotonic() < ends:
            time.sleep(self.leases.pause)
            other = self.somebody_else()
        if other is not None:
            more = len(self._others()) - 1
            raise SightlineError(
                f"{self.folder} is being written by {other}{f' and {more} more' if more else ''}; wait for its end, or "
                "join it with --launcher queue"
            )

    def _driver_died(self) -> bool:
        """Whether a driver left its lease behind: its workers see that too, and end."""
        generation = self._others().get(DRIVER, 0)
        return bool(generation) and self.leases.is_living(DRIVER, generation) is False

    def opening(self) -> AbstractContextManager[None]:
        """A turn alone among all that open the folder, for as long as that takes."""
        moved()  # whatever came before, such as loading a model, is behind this process
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
        alone = self.somebody_else() is None
        self._own = self.leases.claim(f"{MEMBER}{here().token}")
        return alone

    @property
    def alone(self) -> bool:
        """Whether this process has the folder to itself."""
        return self._own is not None and self._own.name == DRIVER and not self._own.lost

    def opened(self) -> None:
        """From now on there is a run in the folder: where it is no more, somebody took it away."""
        self.leases.opened = True

    def refuse_loss(self) -> None:
        """Ends a process whose folder is gone, and a driver whose folder another one took over while it was silent."""
        if self.leases.opened and not is_remote(self.folder) and not (self.folder / MANIFEST).is_file():
            raise SightlineError(gone(self.folder))
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


def _of_a_process(name: str) -> bool:
    """Whether a lease says that a process is at work, whatever on."""
    return name == DRIVER or name.startswith(MEMBER)


@contextmanager
def alone_in(*folders: Place, timeout: float = 60.0) -> Iterator[None]:
    """Within it nobody else is at work in some run folders; refused where somebody is."""
    with ExitStack() as held:
        for folder in folders:
            attendance = held.enter_context(Attendance(folder, timeout).attending())
            with attendance.opening():
                attendance.drive()
        yield
