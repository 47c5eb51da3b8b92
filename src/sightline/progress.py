"""What is said on a terminal: a bar with rate and time left, a spinner, tables, lines; a line now and then in a log.

For programs, every step as a line of JSON on standard error.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.segment import Segment
from rich.text import Text

from sightline.errors import printable

LOG_EVERY_SECONDS = 30.0
JSON_EVERY_SECONDS = 0.5
LONG_BAR, SHORT_BAR, AFTER = 40, 8, " after 0:00:00"
"""Columns of a bar where there is room; below the fewer ones the time that has passed is left out. No word is cut."""
_for_programs = False


@contextmanager
def in_json(wanted: bool) -> Iterator[None]:
    """Within it progress is told in JSON lines, if that is wanted."""
    global _for_programs
    before, _for_programs = _for_programs, wanted
    try:
        yield
    finally:
        _for_programs = before


def _tell(**facts: object) -> None:
    print(json.dumps(facts), file=sys.stderr, flush=True)


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
    if _for_programs:
        _tell(event="waiting", what=what)
        yield
        return
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
        self._told = -1
        self._started = self._logged = time.monotonic()
        console = SafeConsole(stderr=True)
        self._bar: RichProgress | None = None
        if console.is_terminal and not _for_programs:
            words = f"{what}  {total}/{total} 10000.0 {unit}/s left 0:00:00 "
            room = console.width - len(words)
            after = (TextColumn("after"), TimeElapsedColumn()) if room > len(AFTER) + SHORT_BAR else ()
            self._bar = RichProgress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=max(1, min(LONG_BAR, room - (len(AFTER) if after else 0)))),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TextColumn("left"),
                TimeRemainingColumn(),
                *after,
                console=console,
            )

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=self._total, rate="")
        self._show()
        return self

    def advance(self, count: int = 1) -> None:
        self.reach(self._done + count)

    def reach(self, done: int) -> None:
        """So many are done by now, whoever did them. Never goes back: what was seen done is done."""
        self._done = max(done, self._done)
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        rate = self._done / max(now - self._started, 1e-9)
        left = (self._total - self._done) / rate if rate else None
        if _for_programs:
            if self._told < 0 or now - self._logged >= JSON_EVERY_SECONDS or self._done == self._total != self._told:
                self._logged, self._told = now, self._done
                counted = {"done": self._done, "total": self._total, "unit": self._unit}
                rounded = None if left is None else round(left, 1)
                _tell(event="progress", what=self._what, **counted, per_second=round(rate, 2), seconds_left=rounded)
        elif self._bar is not None:
            self._bar.update(self._task, completed=self._done, rate=f"{rate:.1f} {self._unit}/s")
        elif now - self._logged >= LOG_EVERY_SECONDS:
            self._logged = now
            seconds = "?" if left is None else f"{left:.0f}"
            print(
                f"{self._what}: {self._done}/{self._total} {self._unit}, {rate:.1f}/s, {seconds} s left",
                file=sys.stderr,
                flush=True,
            )

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
