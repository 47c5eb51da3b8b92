"""Workers that pull tasks, are not equally fast and die: a discrete-event simulation with nothing but a heap.

What is simulated is what the launchers do. A task begins with encoding, which whoever takes it over does again, and
goes on arm by arm; the rows of a finished arm are in the folder and stay. Workers pull the longest task that is left
and claim one more while they work. When a worker dies, what it held is taken over once its lease has not moved for a
while, and another worker is started in its place.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Literal

Event = Literal["ready", "finished", "died", "returned"]
State = Literal["starting", "waiting", "working"]


@dataclass(frozen=True)
class Work:
    """One task, in seconds of a worker of ordinary speed."""

    encode: float
    """Claiming, decoding, vision tower: what is lost with the worker."""
    pieces: int
    """Arms; each is kept once it is written."""
    piece: float
    """One arm: select, language model, write."""
    shard: int = 0
    """Whose images these are: a static split goes by shards."""

    @property
    def seconds(self) -> float:
        return self.encode + self.pieces * self.piece

    def after(self, seconds: float) -> Work:
        """What is left for the next worker when one dies this long after it began."""
        done = 0 if seconds < self.encode else min(self.pieces - 1, int((seconds - self.encode) / self.piece))
        return replace(self, pieces=self.pieces - done)


@dataclass(frozen=True)
class Cluster:
    """Workers, how unequal they are, and how they die. Seconds, unless said otherwise."""

    workers: int
    start: float = 0.0
    """From a process to its first task: imports, weights, compiling."""
    first_start: float | None = None
    """The same when all start at once and read the weights together; None: as ever."""
    spread: float = 0.0
    """Standard deviation of the logarithm of a worker's speed; the speeds' mean is 1, so that a spread in itself
    neither adds to what the workers can do together nor takes from it."""
    lifetime: float = math.inf
    """Mean time until a worker dies, whatever it does."""
    restart: float = 0.0
    """Until another process is started in the place of a dead one."""
    timeout: float = 0.0
    """Until others take over what a dead worker held."""
    ahead: int = 1
    """Tasks that a worker claims while it works on one."""
    pulls: bool = True
    """Whether workers take what is left, longest first; else each of n has every n-th shard from the beginning."""


@dataclass(frozen=True)
class Outcome:
    """Where the time of all workers went; the four parts add up to ``workers * wall``."""

    wall: float
    workers: int
    useful: float
    """Work that is in the folder and was done once."""
    lost: float
    """Work that died with its worker: an unfinished arm, and the encoding that has to be done again."""
    starting: float
    """Starting, and waiting to be started again."""
    waiting: float
    """Nothing to do: at the end, or before a lease runs out."""
    deaths: int

    @property
    def total(self) -> float:
        return self.workers * self.wall

    def share(self, seconds: float) -> float:
        return seconds / self.total if self.total else 0.0


@dataclass
class _Worker:
    slowness: float
    state: State = "starting"
    since: float = 0.0
    life: int = 0
    """How many times it was started: events of an earlier life are void."""
    held: deque[Work] = field(default_factory=deque)
    own: deque[Work] = field(default_factory=deque)
    """What is its alone, where nobody pulls."""


class Simulation:
    """One run of some work on a cluster, drawn from a seed."""

    def __init__(self, cluster: Cluster, work: Iterable[Work], seed: int = 0) -> None:
        self._cluster, self._random, self._order = cluster, Random(seed), count()
        self._events: list[tuple[float, int, Event, int, int, Work | None]] = []
        self._offered: list[tuple[float, int, Work]] = []
        self._workers = [_Worker(self._slowness()) for _ in range(cluster.workers)]
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._left = self._deaths = 0
        for task in work:
            self._left += 1
            if cluster.pulls:
                self._offer(task)
            else:
                self._workers[task.shard % cluster.workers].own.append(task)

    def outcome(self) -> Outcome:
        """Every event in order of time, until all work is done."""
        cluster, now = self._cluster, 0.0
        for number in range(cluster.workers):
            self._start(0.0, number, cluster.start if cluster.first_start is None else cluster.first_start)
        while self._left:
            now, _, kind, number, life, task = heapq.heappop(self._events)
            if kind == "returned":
                assert task is not None
                self._offer(task)
                self._wake(now)
            elif life == self._workers[number].life:
                {"ready": self._ready, "finished": self._finished, "died": self._died}[kind](now, number)
        for worker in self._workers:
            self._pass(worker, now, "waiting")
        useful, lost, starting, waiting = (self._spent[part] for part in ("working", "lost", "starting", "waiting"))
        return Outcome(now, cluster.workers, useful, lost, starting, waiting, self._deaths)

    def _slowness(self) -> float:
        """What a worker's time for a task is multiplied by."""
        spread = self._cluster.spread
        return math.exp(self._random.gauss(0, spread) + spread**2 / 2)

    def _at(self, time: float, kind: Event, number: int = 0, task: Work | None = None) -> None:
        heapq.heappush(self._events, (time, next(self._order), kind, number, self._workers[number].life, task))

    def _offer(self, task: Work) -> None:
        heapq.heappush(self._offered, (-task.seconds, next(self._order), task))

    def _pass(self, worker: _Worker, now: float, state: State) -> None:
        """Books the time of the state that ends."""
        self._spent[worker.state] += now - worker.since
        worker.state, worker.since = state, now

    def _start(self, now: float, number: int, seconds: float) -> None:
        """A process that takes its first task after so long, and that will die one day."""
        self._workers[number].life += 1
        self._at(now + seconds, "ready", number)
        if math.isfinite(self._cluster.lifetime):
            self._at(now + self._random.expovariate(1 / self._cluster.lifetime), "died", number)

    def _ready(self, now: float, number: int) -> None:
        """Claims what it may hold, and begins with the first of it."""
        worker, cluster = self._workers[number], self._cluster
        while len(worker.held) <= cluster.ahead and (self._offered if cluster.pulls else worker.own):
            worker.held.append(heapq.heappop(self._offered)[2] if cluster.pulls else worker.own.popleft())
        self._pass(worker, now, "working" if worker.held else "waiting")
        if worker.held:
            self._at(now + worker.held[0].seconds * worker.slowness, "finished", number)

    def _wake(self, now: float) -> None:
        """Gives what has come back to workers that have nothing to do."""
        for number, worker in enumerate(self._workers):
            if self._offered and worker.state == "waiting":
                self._ready(now, number)

    def _finished(self, now: float, number: int) -> None:
        self._workers[number].held.popleft()
        self._left -= 1
        self._ready(now, number)

    def _died(self, now: float, number: int) -> None:
        """What it held waits until its lease has run out; where nobody pulls, until its successor is there."""
        worker, cluster = self._workers[number], self._cluster
        self._deaths += 1
        if worker.state == "working":
            task, spent = worker.held.popleft(), now - worker.since
            rest = task.after(spent / worker.slowness)
            lost = spent - (task.pieces - rest.pieces) * task.piece * worker.slowness
            self._spent["lost"] += lost
            self._spent["working"] -= lost
            worker.held.appendleft(rest)
        self._pass(worker, now, "starting")
        for task in reversed(worker.held):
            if cluster.pulls:
                self._at(now + cluster.timeout, "returned", task=task)
            else:
                worker.own.appendleft(task)
        worker.held.clear()
        self._start(now + cluster.restart, number, cluster.start)


def simulated(cluster: Cluster, work: Iterable[Work], seed: int = 0) -> Outcome:
    return Simulation(cluster, work, seed).outcome()
