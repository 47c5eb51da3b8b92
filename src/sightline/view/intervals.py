"""Headline and intervals of a run, computed in a process beside the server, which goes on answering."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError

DRAWS = 2000
"""Bootstrap draws, as the page says."""
BUSY, DONE, FAILED = "computing", "done", "failed"


@dataclass
class BackgroundIntervals:
    """What is computed of one run, for the version of its rows that it was asked for last."""

    folder: Path
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _process: subprocess.Popen[bytes] | None = field(init=False, default=None)
    _found: tuple[int, dict[str, Any]] | None = field(init=False, default=None)
    """Of which version, and what."""
    _asked: int | None = field(init=False, default=None)
    """The version that a page has asked for before."""
    _stopped: bool = field(init=False, default=False)

    def of(self, version: int) -> dict[str, Any]:
        """The result for these rows; ``{"state": "computing"}`` while there is none. Begun when asked a second time."""
        with self._lock:
            if self._found is not None and self._found[0] == version:
                return self._found[1]
            if self._asked != version:  # the page that asks first is shown before anything else begins
                self._asked = version
            elif self._process is None and not self._stopped:
                # A group of its own: Ctrl-C is for the server, which ends this process itself. Not a session: there it
                # would have a share of the cores as large as the server's, however nice it is.
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "sightline.view.intervals", str(self.folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    process_group=0,
                )
                threading.Thread(target=self._read, args=(version, self._process), daemon=True).start()
        return {"state": BUSY}

    def _read(self, version: int, process: subprocess.Popen[bytes]) -> None:
        output = process.communicate()[0]
        try:
            found = json.loads(output)
        except ValueError:
            found = {"state": FAILED, "why": f"the process ended with code {process.returncode}"}
        with self._lock:
            self._found, self._process = (version, found), None

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()


def measured(folder: str, draws: int = DRAWS) -> dict[str, Any]:
    """The report's own headline, table and frontier, with intervals; in one line what stands in the way of them."""
    from sightline.report.summary import headlines, main_table, summarise
    from sightline.rows.source import read_source
    from sightline.view.overview import axes_of, frontier_points, table_cells

    try:
        source = read_source([folder])
        summary = summarise(source, draws)
    except SightlineError as error:
        return {"state": FAILED, "why": str(error)}
    audited = source.runs[0]
    return {
        "state": DONE,
        "headline": headlines(source, summary),
        "table": table_cells(main_table(summary), audited.in_words),
        "points": frontier_points(summary.arms, audited.in_words, audited.yes_or_no),
        "axes": axes_of(audited.in_words, audited.yes_or_no),
        "notes": source.notes,
        "draws": draws,
    }


if __name__ == "__main__":
    if hasattr(os, "nice"):
        os.nice(10)  # whoever looks at a page is served first
    print(json.dumps(measured(sys.argv[1])))
