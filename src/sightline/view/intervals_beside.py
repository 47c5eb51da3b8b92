"""Headline and intervals of a run, computed in a process beside the server, which goes on answering."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError

DRAWS = 2000
"""Bootstrap draws, as the page says."""
BUSY = "computing"


@dataclass
class IntervalsBeside:
    """What is computed of one run, for the version of its rows that it was asked for last."""

    folder: Path
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _running: tuple[int, Future[dict[str, Any]]] | None = field(init=False, default=None)
    _pool: ProcessPoolExecutor | None = field(init=False, default=None)

    def of(self, version: int) -> dict[str, Any]:
        """The result for these rows; ``{"state": "computing"}`` while there is none."""
        with self._lock:
            if self._running is None or (self._running[0] != version and self._running[1].done()):
                if self._pool is None:
                    self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
                self._running = version, self._pool.submit(measured, str(self.folder))
            of, future = self._running
        if of != version or not future.done():
            return {"state": BUSY}
        error = future.exception()
        if error is not None:
            return {"state": "failed", "why": str(error) or type(error).__name__}
        return {"state": "done", **future.result()}

    def stop(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            for process in list((pool._processes or {}).values()):
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)


def measured(folder: str, draws: int = DRAWS) -> dict[str, Any]:
    """The report's own headline, table and frontier, with intervals."""
    if hasattr(os, "nice") and multiprocessing.parent_process() is not None:
        os.nice(10)
    from sightline.report.headline import headlines
    from sightline.report.overview import main_table
    from sightline.report.source import read_source
    from sightline.report.summary import summarise
    from sightline.view.first_numbers import axes_of, frontier_points, table_cells

    try:
        source = read_source([folder])
        summary = summarise(source, draws)
    except SightlineError as error:
        raise RuntimeError(str(error)) from None  # which every process can hand on
    audited = source.runs[0]
    return {
        "headline": headlines(source, summary),
        "table": table_cells(main_table(summary), audited.in_words),
        "points": frontier_points(summary.arms, audited.in_words, audited.yes_or_no),
        "axes": axes_of(audited.in_words, audited.yes_or_no),
        "notes": [*summary.at_chance.values(), *source.notes],
        "draws": draws,
    }
