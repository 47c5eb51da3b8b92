"""Who is at work in a run folder, and on what: leases, which processes of several machines take in turn.

A lease is a small file, ``leases/<name>.<generation>.json``, made by whoever is first; the highest generation
holds. Its holder rewrites it now and then with a growing number. Whoever waits takes over by making the next generation
when the content has not changed for a while on its own clock: no clocks are compared, so that they may jump or differ.
A holder that is a process of this machine and no longer lives is followed at once. One whose work has not moved for
long gives no more signs of life, although its process lives.

Leases save double work and nothing else: a holder that was taken for dead and comes back does no harm, since rows that
are there are not written again.

Two kinds of process are at work in a folder: a *driver* that has locked it for itself and the workers it starts, and
*members*, any number of them, that share it. Each says so by a lease of its own (``FolderAccess``); what a member is
at, by a lease on the task.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Lock, Thread

from sightline.device import last_move, moved
from sightline.errors import SightlineError
from sightline.places.listing import Listing, Place, is_remote, read_whole, remove
from sightline.places.writing import (
    Holder,
    create_new,
    folder_gone,
    holder_of,
    make_folder,
    make_within,
    this_process,
    write_whole,
)

LEASES = "leases"
DRIVER, MEMBER, OPENING, BOXES = "driver", "member-", "opening", "boxes"
"""Names of leases: of the one driver, of each process that shares, of short turns. All others are tasks."""
TRIES = 50
"""Of making a lease while others that end remove the folder of leases again and again."""
BEATS = 6
"""Signs of life within the time after which a silent holder is given up."""
LOOK = 0.1
"""Seconds between two looks at a lease that one waits for."""
LOOK_AT_STORE = 1.0
"""The same where every look is a request."""
ENDING = 20.0
"""Seconds that workers whose driver is gone may take to give back what they have begun."""


@dataclass(frozen=True)
class Held:
    """What a lease file says."""

    holder: Holder | None
    since: str = ""
    about: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.holder or 'an unknown process'}{f', since {self.since}' if self.since else ''}"


@dataclass
class Lease:
    """What this process holds."""

    name: str
    generation: int
    about: tuple[str, ...] = ()
    """What exactly the holder does under this name, for whoever finds that it did not live to do it."""
    taken_from: Held | None = None
    """Who held it and was given up; None where nobody did."""
    beat: int = 0
    lost: bool = False
    """Whether somebody took over, because this process was silent for too long."""
    since: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
    """For people; nothing is decided by it."""

    def content(self) -> bytes:
        record = {**this_process().as_record(), "since": self.since, "about": self.about, "beat": self.beat}
        return (json.dumps(record) + "\n").encode()


class Leases:
    """Those of one run folder, as this process sees and holds them."""

    def __init__(
        self,
        folder: Place,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        standstill: float = math.inf,
        moved_at: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """``moved_at`` says when the work of this process last moved, on its clock; after so long a ``standstill``
        others may take over."""
        self._place, self.timeout, self._clock = folder / LEASES, timeout, clock
        self._standstill, self._moved_at = standstill, moved_at
        self.opened = False
        """Whether there is a run in the folder: if it is gone then, somebody moved it, and it is not made again."""
        self.pause = min(LOOK_AT_STORE if is_remote(folder) else LOOK, timeout / BEATS)
        """Seconds between two looks at a lease that one waits for."""
        self._seen: dict[tuple[str, int], tuple[bytes, float]] = {}
        self._at_first: dict[tuple[str, int], bytes] = {}
        self._mine: dict[str, Lease] = {}
        self._lock = Lock()
        self._stop = Event()
        self._heart: Thread | None = None

    def listed(self) -> dict[str, int]:
        """The highest generation of every lease that somebody has; one listing."""
        highest: dict[str, int] = {}
        for file in Listing(self._place).within(""):
            found = re.fullmatch(r"([^.].*)\.(\d+)\.json", file.name)
            if found is not None:
                highest[found[1]] = max(int(found[2]), highest.get(found[1], 0))
        return highest

    def claim(self, name: str, generation: int | None = None, about: Sequence[str] = ()) -> Lease | None:
        """Takes a lease that is free, or whose holder is gone; None where somebody has it.

        ``generation`` is what a listing of a moment ago said, 0 for a free one; without it the folder is listed.
        """
        if name in self._mine:
            return None
        before = self.listed().get(name, 0) if generation is None else generation
        lease = Lease(name, before + 1, tuple(about))
        if before:
            held = self.read(name, before)
            if held is not None:
                if not self.is_over(name, before):
                    return None
                lease.taken_from = held
        if not self._create(lease):
            return None
        for old in range(1, before + 1):
            remove(self._file(name, old))
        with self._lock:
            self._mine[name] = lease
        if self._heart is None:
            self._heart = Thread(target=self._beat_on, name="leases", daemon=True)
            self._heart.start()
        return lease

    def update_lease(self, lease: Lease, about: Sequence[str]) -> None:
        """Says anew what the holder does under a lease."""
        with self._lock:
            if lease.name in self._mine and lease.about != tuple(about):
                lease.about = tuple(about)
                lease.beat += 1
                write_whole(self._file(lease.name, lease.generation), lease.content())

    def _create(self, lease: Lease) -> bool:
        """Whether this process was first. The folder may be removed by one that ends while another begins."""
        for tries_left in reversed(range(TRIES)):
            make_within(self._place.parent, self._place) if self.opened else make_folder(self._place)
            try:
                return create_new(self._file(lease.name, lease.generation), lease.content())
            except SightlineError:
                if not tries_left or is_remote(self._place) or self._place.is_dir():
                    raise
        return False

    def release(self, lease: Lease) -> None:
        with self._lock:
            if self._mine.pop(lease.name, None) is not None:
                with suppress(OSError, SightlineError):
                    remove(self._file(lease.name, lease.generation))

    def clear(self, name: str, generation: int) -> None:
        """Removes a lease that nobody lives to hold."""
        if name not in self._mine:
            for old in range(1, generation + 1):
                remove(self._file(name, old))

    def close(self) -> None:
        """Releases whatever this process holds, and leaves no empty folder behind."""
        self._stop.set()
        for lease in list(self._mine.values()):
            self.release(lease)
        if not is_remote(self._place):  # a store has no folders
            for place in (self._place, self._place.parent):
                with suppress(OSError):
                    place.rmdir()

    def remove_of(self, holder: Holder) -> None:
        """Removes the leases of a process that is known to have ended, so that nobody waits for it."""
        for name, generation in self.listed().items():
            held = self.read(name, generation)
            if held is not None and held.holder == holder:
                self.clear(name, generation)

    def read(self, name: str, generation: int) -> Held | None:
        """Who holds a lease; None when it was released meanwhile. Notes when its content was first seen."""
        try:
            content = read_whole(self._file(name, generation))
        except FileNotFoundError:
            return None
        if self._seen.get((name, generation), (b"", 0.0))[0] != content:
            self._seen[name, generation] = content, self._clock()
        try:
            record = json.loads(content)
        except ValueError:
            return Held(None)
        holder = holder_of(record)
        if holder is None:
            return Held(None)
        return Held(holder, str(record.get("since", "")), tuple(record.get("about", ())))

    def is_over(self, name: str, generation: int) -> bool:
        """Whether the holder is gone: dead on this machine, or silent for the time-out on this process' clock."""
        held = self.read(name, generation)
        if held is None or (held.holder is not None and held.holder.lives() is False):
            return True
        return self._clock() - self._seen[name, generation][1] >= self.timeout

    def remember(self, names: Callable[[str], bool]) -> None:
        """Remembers what some leases say now: one that is new or says something else later has a living holder."""
        self._at_first = {}
        for name, generation in self.listed().items():
            if names(name) and self.read(name, generation) is not None:
                self._at_first[name, generation] = self._seen[name, generation][0]

    def is_living(self, name: str, generation: int) -> bool | None:
        """Whether a lease is held by a process that lives; None where it cannot be asked and has not stirred yet."""
        held = self.read(name, generation)
        if held is None or self.is_over(name, generation):
            return False
        if held.holder is not None and held.holder.lives():
            return True
        stirred = self._at_first.get((name, generation)) != self._seen[name, generation][0]
        return True if stirred else None

    @contextmanager
    def turn(self, name: str, given_up: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Waits until the lease can be had, and holds it. ``given_up`` ends the waiting: the body runs without."""
        lease = None
        while lease is None and not given_up():
            lease = self.claim(name)
            if lease is None:
                time.sleep(self.pause)
        try:
            yield
        finally:
            if lease is not None:
                self.release(lease)

    def _file(self, name: str, generation: int) -> Place:
        return self._place / f"{name}.{generation}.json"

    def _beat_on(self) -> None:
        while not self._stop.wait(self.timeout / BEATS):
            self.beat()

    def beat(self) -> None:
        """One sign of life of everything held; what somebody else took over is noted as lost.

        A beat that cannot be written is left out: if that lasts, others take over, as they should. So is one of a
        process whose work stands still.
        """
        if self._clock() - self._moved_at() > self._standstill:
            return
        with suppress(OSError, SightlineError):
            highest = self.listed()
            for lease in list(self._mine.values()):
                with self._lock:
                    if lease.name not in self._mine:
                        continue
                    if highest.get(lease.name) != lease.generation:
                        lease.lost = True
                        del self._mine[lease.name]
                        continue
                    lease.beat += 1
                    write_whole(self._file(lease.name, lease.generation), lease.content())


class FolderAccess:
    """That of this process to one run folder: locked, or shared with others. Leaving gives back all that it holds."""

    def __init__(self, folder: Place, timeout: float, standstill: float = math.inf) -> None:
        self.folder = folder
        self._manifest: Place | None = None
        self._own: Lease | None = None
        self.leases = Leases(folder, timeout, standstill=standstill, moved_at=self._moved_at)
        self.leases.remember(_of_a_process)

    def __enter__(self) -> FolderAccess:
        return self

    def __exit__(self, *_: object) -> None:
        self.leases.close()

    def _moved_at(self) -> float:
        """Until there is a run nothing stands still: a model may take its time to load."""
        return math.inf if self._manifest is None else last_move()

    def wait_to_open(self) -> AbstractContextManager[None]:
        """A turn alone among all that open the folder, for as long as that takes."""
        moved()  # whatever came before, such as loading a model, is behind this process
        return self.leases.turn(OPENING)

    def wait_to_search_boxes(self, given_up: Callable[[], bool]) -> AbstractContextManager[None]:
        """Several that share a folder search for boxes one after the other: all but the first find what is known."""
        return self.leases.turn(BOXES, given_up)

    def lock(self) -> None:
        """Takes the folder for this process and those it starts, or refuses."""
        with self.wait_to_open():
            self.refuse_others()
            self._own = self.leases.claim(DRIVER)
            if self._own is None:
                self.refuse_others()
                raise SightlineError(f"{self.folder} is being written by another process; run the command again")

    def join(self) -> bool:
        """Within ``wait_to_open``: becomes one of those that share the folder; whether nobody else is at work."""
        alone = self.find_other() is None
        self._own = self.leases.claim(f"{MEMBER}{this_process().token}")
        return alone

    def others(self) -> dict[str, int]:
        """Leases by which other processes, dead or alive, say that they are at work, with their generations."""
        own = self._own.name if self._own is not None else ""
        return {name: number for name, number in self.leases.listed().items() if _of_a_process(name) and name != own}

    def find_other(self) -> Held | None:
        """One who is at work and lives, if there is any; what the dead left of themselves is removed.

        Waits for a sign of life only where there is nothing but a lease of another machine, as old as this object.
        """
        unknown = self.others()
        while unknown:
            for name, generation in list(unknown.items()):
                living = self.leases.is_living(name, generation)
                if living:
                    return self.leases.read(name, generation) or Held(None)
                if living is False:
                    del unknown[name]
                    if name != DRIVER:  # whose place the next driver takes
                        self.leases.clear(name, generation)
            if unknown:
                time.sleep(self.leases.pause)
        return None

    def refuse_others(self) -> None:
        """One line that says who is at work, for a driver that would have the folder to itself."""
        ends = time.monotonic() + ENDING
        other = self.find_other()
        while other is not None and self._driver_died() and time.monotonic() < ends:
            time.sleep(self.leases.pause)
            other = self.find_other()
        if other is not None:
            more = len(self.others()) - 1
            raise SightlineError(
                f"{self.folder} is being written by {other}{f' and {more} more' if more else ''}; wait for its end, or "
                "join it with --launcher queue"
            )

    def _driver_died(self) -> bool:
        """Whether a driver left its lease behind: its workers see that too, and end."""
        generation = self.others().get(DRIVER, 0)
        return bool(generation) and self.leases.is_living(DRIVER, generation) is False

    def clear_tasks(self) -> None:
        """Removes leases on tasks that the dead left, for a process that needs none: it is alone in the folder."""
        for name, generation in self.leases.listed().items():
            if name not in (OPENING, BOXES) and not _of_a_process(name):
                self.leases.clear(name, generation)

    def opened(self, manifest: Place) -> None:
        """From now on there is a run in the folder: where this file is no more, somebody took the folder away."""
        self._manifest = manifest
        self.leases.opened = True

    def check(self) -> None:
        """Ends a process whose folder is gone, and a driver whose folder another one took over while it was silent."""
        if self._manifest is not None and not is_remote(self._manifest) and not self._manifest.is_file():
            raise SightlineError(folder_gone(self.folder))
        if self._own is not None and self._own.lost and self._own.name == DRIVER:
            raise SightlineError(
                f"another process took over {self.folder}, since this one gave no sign of life for "
                f"{self.leases.timeout:g} s; what it finished is kept"
            )


def _of_a_process(name: str) -> bool:
    """Whether a lease says that a process is at work, whatever on."""
    return name == DRIVER or name.startswith(MEMBER)


@contextmanager
def locked(*folders: Place, timeout: float = 60.0) -> Iterator[None]:
    """Within it nobody else is at work in some run folders; refused where somebody is."""
    with ExitStack() as held:
        for folder in folders:
            held.enter_context(FolderAccess(folder, timeout)).lock()
        yield
