"""What is going on: a bar with rate and time left or a spinner on a terminal; a line now and then in a log.

For programs, every step as a line of JSON on standard error.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

LOG_EVERY_SECONDS = 30.0
JSON_EVERY_SECONDS = 0.5
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


@contextmanager
def waiting_for(what: str, *, logged: bool = True) -> Iterator[None]:
    """Says what is being waited for: a spinner on a terminal, a line in a log unless it is not ``logged``."""
    if _for_programs:
        _tell(event="waiting", what=what)
        yield
        return
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(what):
            yield
        return
    if logged:
        print(what, file=sys.stderr, flush=True)
    yield


class Progress:
    """``with Progress("auditing", 1200, "rows") as bar: bar.advance(16)``"""

    def __init__(self, what: str, total: int, unit: str) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._done = 0
        self._told = -1
        self._started = self._logged = time.monotonic()
        console = Console(stderr=True)
        self._bar: RichProgress | None = None
        if console.is_terminal and not _for_programs:
            self._bar = RichProgress(
                TextColumn("{task.description}"),
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
