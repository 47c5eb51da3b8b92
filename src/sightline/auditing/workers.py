"""Workers of one driver: started, watched, replaced when they die, ended with it. What they do is in the run folder."""

from __future__ import annotations

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sightline.auditing.audit import Job, audit_as_worker, retry_failed
from sightline.auditing.config import AuditConfig
from sightline.auditing.shards import Task, tasks_left
from sightline.device import moved
from sightline.device.work import in_words
from sightline.errors import SightlineError
from sightline.progress import Progress, say, waiting_for
from sightline.store.folder import MANIFEST, RunFolder
from sightline.store.leases import FolderAccess

DEATHS = 3
"""Workers that may die one after the other in one place while nothing moves; then nobody takes the place."""
TO_END = 15.0
"""Seconds that a worker has to give back what it has begun."""
PAUSE = 0.2
LAST_WORDS = 10.0
"""Seconds that the others have to see that all is done, once one of them has."""
SHARE = 0.05
"""The most of its time that a driver counts what is done."""


@dataclass(frozen=True)
class Ended:
    """How a worker came to its end."""

    done: bool = False
    """Whether it found nothing left to do."""
    error: str = ""
    """What it said to the user; "" where it said nothing."""
    how: str = "it died"


class StartedWorker(ABC):
    """One worker, wherever it runs."""

    @abstractmethod
    def ended(self) -> Ended | None:
        """None while it works."""

    @abstractmethod
    def stop(self) -> None:
        """Asks it to give back what it has begun and to end."""

    @abstractmethod
    def kill(self) -> None:
        """Waits a little for its end, and sees to it."""


@dataclass
class _Place:
    start: Callable[[], StartedWorker]
    worker: StartedWorker
    deaths: int = 0
    """Since rows were last written."""
    last: Ended = field(default_factory=Ended)
    empty: bool = False

    def has_ended(self) -> bool:
        """Whether its worker ended since somebody last asked; how is noted."""
        if self.empty or (ended := self.worker.ended()) is None:
            return False
        self.last = ended
        self.deaths += not ended.done
        return True

    def refill(self) -> None:
        """Somebody else takes the place of a worker that did not end by finishing or with a sentence."""
        if self.last.done or self.last.error or self.deaths >= DEATHS:
            self.empty = True
        else:
            self.worker = self.start()


def run_workers(job: Job, starts: Sequence[Callable[[], StartedWorker]]) -> None:
    """Has a job done by workers, one for each of ``starts``, with the run folder taken for this process."""
    with FolderAccess(job.folder.path, job.config.worker_timeout, job.config.standstill) as access:
        access.lock()
        with access.wait_to_open():
            job.folder.files.refresh()
            if access.find_other() is None:
                retry_failed(job)
        _watch(job, access, starts)


def _watch(job: Job, access: FolderAccess, starts: Sequence[Callable[[], StartedWorker]]) -> None:
    tally = RowCounter(job.folder, tasks_left(job.folder, job.own_shards, job.plan.arms))
    places: list[_Place] = []
    try:
        with waiting_for(f"starting {len(starts)} worker{'s' * (len(starts) > 1)}"):
            for start in starts:
                places.append(_Place(start, start()))
        with Progress("auditing", tally.total, "rows") as progress:
            until = math.inf
            while any(not place.empty for place in places) and time.monotonic() < until:
                moved()
                if job.folder.exists:
                    access.opened(job.folder.path / MANIFEST)
                access.check()
                ended = [place for place in places if place.has_ended()]
                if tally.count(at_once=bool(ended)):  # nobody is given up for what a count of long ago does not know
                    for place in places:
                        place.deaths = 0
                progress.reach(tally.done)
                for place in ended:
                    place.refill()
                if until == math.inf and any(place.last.done for place in places):
                    until = time.monotonic() + LAST_WORDS
                time.sleep(PAUSE)
            tally.count(at_once=True)
            progress.reach(tally.done)
    finally:
        for place in places:
            place.worker.stop()
        for place in places:
            place.worker.kill()
    lasts = [place.last for place in places]
    if not any(last.done for last in lasts):
        first = next((last for last in lasts if last.error), lasts[0])
        raise SightlineError(first.error or f"every worker died, the first like this: {first.how}")
    for error in dict.fromkeys(last.error for last in lasts if last.error):
        say(f"note: a worker ended early: {error}", err=True)


class RowCounter:
    """Counts in the folder how many rows of some tasks are there, no more often than it can afford."""

    def __init__(self, folder: RunFolder, tasks: Sequence[Task]) -> None:
        self._folder = folder
        self._wanted: dict[str, dict[int, int]] = {}
        for task in tasks:
            for arm in task.arms:
                self._wanted.setdefault(arm.text, {})[task.shard.index] = len(task.shard.probes)
        self.total = sum(task.rows for task in tasks)
        self.done, self._failures = 0, 0
        self._next = 0.0

    def count(self, *, at_once: bool = False) -> bool:
        """Whether something moved: there are more rows than before, or more is known that does not work."""
        started = time.monotonic()
        if started < self._next and not at_once:
            return False
        self._folder.files.refresh()
        before, self.done = (self.done, self._failures), 0
        for arm, shards in self._wanted.items():
            there = self._folder.finished_shards(arm)
            self.done += sum(rows for shard, rows in shards.items() if shard in there)
        self._next = time.monotonic() + (time.monotonic() - started) / SHARE
        self._failures = len(self._folder.notes.names("failed"))
        return (self.done, self._failures) != before


# What its workers are told, and what each of them does.


def worker_configs(
    config: AuditConfig, recorded: Mapping[str, Any], gpus: Sequence[str], cores: int
) -> list[AuditConfig]:
    """One per worker: its device, and on a CPU the threads that all of them have."""
    changes: dict[str, Any] = {"launcher": "queue", "workers": "auto", "address": None, "json_progress": False}
    if gpus:
        count = len(gpus) if config.workers == "auto" else config.workers
        return [config.model_copy(update={**changes, "device": gpus[i % len(gpus)]}) for i in range(count)]
    threads = threads_for(config, recorded)
    count = max(1, cores // threads) if config.workers == "auto" else config.workers
    return [config.model_copy(update={**changes, "threads": threads, "device": "cpu"})] * count


def threads_for(config: AuditConfig, recorded: Mapping[str, Any]) -> int:
    """Of one process on a CPU: those given, else those of the folder, else PyTorch's choice."""
    import torch

    return int(config.threads or recorded.get("threads") or torch.get_num_threads())


def usable_cores() -> int:
    """Those that this process may use, of which a batch system may have left it fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def work(settings: dict[str, Any]) -> dict[str, Any]:
    """Takes part in an audit until all of it is in the folder; an error for the user is an answer too."""
    try:
        audit_as_worker(AuditConfig(**settings))
    except SightlineError as error:
        return {"error": str(error)}
    except (RuntimeError, MemoryError) as error:
        line = in_words(error)
        if line is None:
            raise
        return {"error": line}
    return {"done": True}
