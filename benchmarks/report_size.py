"""Seconds and peak memory of what is made from the rows of a run: the summary of a terminal, the gate, the report.

    python -m benchmarks.report_size RUN...

Each is a process of its own, so that its peak is its own; processor seconds count what it computed, whatever else the
machine did. ``python -m benchmarks.large_runs`` writes runs of any size.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from sightline.rows.reader import count_rows
from sightline.rows.run import load_run

RULES = ("accuracy(target:0.3) >= 0.5", "posecr(target:0.3) - posecr(full) >= -1", "auroc(target:0.3) >= 0.5")
SUMMARY = (
    "import sys; from sightline.rows.run import load_run; "
    "from sightline.commands.run import print_summary; print_summary(load_run(sys.argv[1]))"
)


class SizeRecord(NamedTuple):
    """What one command took."""

    command: str
    rows: int
    seconds: float
    processor_seconds: float
    peak_gb: float


def measure(path: Path | str, commands: Iterable[str] = ("summary", "gate", "report")) -> list[SizeRecord]:
    """Every command on one run folder."""
    rows = count_rows(load_run(path))
    with tempfile.TemporaryDirectory() as place:
        arguments: dict[str, Sequence[str]] = {
            "summary": ("-c", SUMMARY, str(path)),
            "gate": ("-m", "sightline", "gate", str(path), *(word for rule in RULES for word in ("--rule", rule))),
            "report": ("-m", "sightline", "report", str(path), "--out", str(Path(place) / "report")),
        }
        return [_timed(command, rows, arguments[command]) for command in commands]


def _timed(command: str, rows: int, arguments: Sequence[str]) -> SizeRecord:
    started = time.perf_counter()
    child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{command} ended with {child.returncode}: {said.decode()[-500:]}")
    seconds = time.perf_counter() - started
    return SizeRecord(command, rows, seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20)


def table(records: Iterable[SizeRecord]) -> str:
    """The records as Markdown."""
    lines = ["| command | rows | seconds | processor seconds | peak memory, GB |", "|---|---:|---:|---:|---:|"]
    lines += [
        f"| {one.command} | {one.rows:,} | {one.seconds:.0f} | {one.processor_seconds:.0f} | {one.peak_gb:.2f} |"
        for one in records
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--commands", default="summary,gate,report", help="Which of them, separated by commas.")
    asked = parser.parse_args()
    print(table(record for run in asked.runs for record in measure(run, asked.commands.split(","))))


if __name__ == "__main__":
    main()
