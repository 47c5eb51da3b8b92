"""One input under watch: taken, refused in one line, or a failure."""

from __future__ import annotations

import resource
import signal
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import typer

from sightline import SightlineError
from tests.fuzz.subjects.base import Subject
from tests.kept_memory import peak_memory

MOST_CPU = 20.0
"""Seconds of computing that one input may cost; almost all cost a thousandth of that. Time of the process, so that a
busy machine changes nothing."""
MOST_WAITING = 120.0
"""Seconds after which an input that waits for something, without computing, is given up."""
AGAIN = 1.0
"""Seconds until it is given up once more."""
MOST_MEMORY = 1024 * 2**20
"""Bytes that one input may add to the process."""
LONGEST_LINE = 4000
"""Characters of a message that a person may be asked to read."""


class Hang(BaseException):
    """The time is up. No ``except Exception`` on the way may hold it up."""


@dataclass
class Tally:
    """What became of the inputs of one subject."""

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    hangs: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    """Where it failed -> the first failure there, with all that is needed to see it again."""
    seen: Counter[str] = field(default_factory=Counter)
    """How often it failed there."""
    longest: float = 0.0
    """Seconds of computing of the slowest input."""
    memory: int = 0
    """Bytes by which the process grew at most for one input."""

    def fail(self, where: str, story: str) -> None:
        self.seen[where] += 1
        self.failures.setdefault(where, story)

    def add(self, other: Tally) -> None:
        """The figures of another subject to these."""
        for name in ("inputs", "refused", "accepted", "hangs", "seen"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.longest, self.memory = max(self.longest, other.longest), max(self.memory, other.memory)


def try_inputs(subject: Subject, count: int, seed: int) -> Tally:
    """Tries ``count`` inputs of a subject; the n-th of a seed is always the same one, whoever asks for it: its random
    numbers depend on its name alone."""
    tally = Tally()
    for name in (f"{seed}/{subject.name}/{number}" for number in range(count)):
        try_given(subject, tally, name, subject.make(Random(name)))
    return tally


def try_given(subject: Subject, tally: Tally, name: str, given: Any) -> None:
    """An input that was made already."""
    tally.inputs += 1
    before, start = peak_memory(), process_time()
    try:
        with _limits(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            subject.read(given)
    except SightlineError as error:
        tally.refused += 1
        if "\n" in str(error) or len(str(error)) > LONGEST_LINE or not str(error).strip():
            tally.fail("not one line", f"{name}: {str(error)[:500]!r}")
        left = subject.left_behind()
        if left:
            tally.fail("partial output", f"{name}: {left} after: {error}")
    except typer.Exit:
        tally.refused += 1
    except Hang:
        tally.hangs += 1
        tally.fail("hang", f"{name}: {_shown(given)}")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        place = _place(error)
        tally.fail(place, f"{name}: {type(error).__name__}: {str(error)[:300]} for {_shown(given)}")
    else:
        tally.accepted += 1
    tally.longest = max(tally.longest, process_time() - start)
    grown = peak_memory() - before
    tally.memory = max(tally.memory, grown)
    if grown > MOST_MEMORY:
        tally.fail("memory", f"{name}: {grown / 2**20:.0f} MiB for {_shown(given)}")


@contextmanager
def _limits() -> Iterator[None]:
    """Bounds of computing, of waiting and of address space while an input is tried."""

    def give_up(number: int, frame: Any) -> None:
        raise Hang

    signals = (signal.SIGPROF, signal.SIGALRM)
    before = [signal.signal(number, give_up) for number in signals]
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + 4 * MOST_MEMORY, hard))
    # Again and again: what is raised inside a callback may be dropped there.
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU, AGAIN)
    signal.setitimer(signal.ITIMER_REAL, MOST_WAITING, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def _place(error: BaseException) -> str:
    """The innermost line of Sightline that the error came through, with its type."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/sightline/" in frame.filename] or list(frames)
    file = own[-1].filename.rpartition("/sightline/")[2]
    return f"{type(error).__name__} at {file}:{own[-1].lineno}"


def _shown(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= 600 else f"{text[:600]}..."
