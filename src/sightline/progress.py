"""What is said on a terminal: a bar with rate and time left, a spinner, tables, lines; a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.segment import Segment
from rich.text import Text

from sightline.errors import printable

LOG_EVERY_SECONDS = 30.0


class SafeConsole(Console):
    """A console that shows control characters of what it prints; only its own move the cursor.

    Text is not read as rich's markup unless a call asks for that: names may hold square brackets.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"markup": False, **settings})

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text, keep="\n"))


def say(text: str, *, err: bool = False) -> None:
    """Prints lines that quote something from outside: a name, a path, an answer."""
    print(printable(text, keep="\n\t"), file=sys.stderr if err else sys.stdout, flush=True)


@contextmanager
def waiting_for(what: str, *, logged: bool = True) -> Iterator[None]:
    """Says what is being waited for: a spinner on a terminal, a line in a log unless it is not ``logged``."""
    console = SafeConsole(stderr=True)
    if console.is_terminal:
        with console.status(Text(what)):
            yield
        return
    if logged:
        say(what, err=True)
    yield


class Progress:
    """``with Progress("auditing", 1200, "rows") as bar: bar.advance(16)``"""

    def __init__(self, what: str, total: int, unit: str) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._done = 0
        self._started = self._logged = time.monotonic()
        console = SafeConsole(stderr=True)
        self._bar: RichProgress | None = None
        if console.is_terminal:
            self._bar = RichProgress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=console,
            )

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=self._total, rate="")
        return self

    def advance(self, count: int = 1) -> None:
        self._done += count
        elapsed = max(time.monotonic() - self._started, 1e-9)
        rate = self._done / elapsed
        if self._bar is not None:
            self._bar.update(self._task, advance=count, rate=f"{rate:.1f} {self._unit}/s")
        elif time.monotonic() - self._logged >= LOG_EVERY_SECONDS:
            self._logged = time.monotonic()
            left = (self._total - self._done) / rate
            print(
                f"{self._what}: {self._done}/{self._total} {self._unit}, {rate:.1f}/s, {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
