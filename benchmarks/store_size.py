"""Time and peak memory of what reads whole runs, by the number of rows: a table in Markdown.

    python -m benchmarks.store_size [--rows 10000 100000 ...] [--only rows verify compact] [--folder DIR]

Runs are made by ``benchmarks.large_runs`` (five arms, masks, one shard file per 640 rows) in a folder that is removed
afterwards unless it is named. Every measurement is a process of its own; its memory is the largest resident set that
the system saw, its time is that of the processor, so that a busy machine tells the same, on one thread: on a busy
machine, matrix products on several threads spend their time waiting for each other. This process imports nothing large:
a child's peak begins with what its parent holds.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
RULE = "accuracy(target:0.3) - accuracy(grid:0.3) >= 0"


@dataclass(frozen=True)
class Measured:
    """One command at one size."""

    what: str
    rows: int
    seconds: float
    """Of the processor, starting Python included."""
    megabytes: float
    size: int | None = None
    """Bytes of what it wrote."""


def measured(what: str, rows: int, words: Sequence[str], out: Path | None = None) -> Measured:
    """``python -m sightline WORDS`` in a process of its own."""
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen([sys.executable, "-m", "sightline", *words], stdout=subprocess.DEVNULL, env=alone)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"sightline {' '.join(words)} ended with {child.returncode}")
    return Measured(
        what, rows, usage.ru_utime + usage.ru_stime, _megabytes(usage), None if out is None else out.stat().st_size
    )


def _megabytes(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def measure(run: Path, rows: int, only: Sequence[str], scratch: Path) -> list[Measured]:
    """All commands on one run. Compacting comes last but for reading the rows again from packs."""
    results = []
    if "rows" in only:
        results += [_exported(run, rows, kind, scratch) for kind in ("csv", "jsonl", "parquet")]
        chosen = ["--columns", "probe_id,ecr,correct", "--arm", "target:0.3"]
        results.append(_exported(run, rows, "csv", scratch, chosen, "rows, 3 columns of one arm"))
    if "verify" in only:
        results.append(measured("verify", rows, ["verify", str(run)]))
    if "gate" in only:
        results.append(measured("gate", rows, ["gate", str(run), "--rule", RULE]))
    if "report" in only:
        results.append(measured("report", rows, ["report", str(run), "--out", str(scratch / "report")]))
    if "compact" in only:
        results.append(measured("compact", rows, ["compact", str(run)]))
        results.append(measured("verify, compacted", rows, ["verify", str(run)]))
        results.append(_exported(run, rows, "parquet", scratch, what="rows parquet, compacted"))
    return results


def _exported(
    run: Path, rows: int, kind: str, scratch: Path, words: Sequence[str] = (), what: str | None = None
) -> Measured:
    out = scratch / f"rows.{kind}"
    command = ["rows", str(run), "--format", kind, "--out", str(out), *words]
    found = measured(what or f"rows {kind}", rows, command, out)
    out.unlink()
    return found


def size_table(results: Sequence[Measured]) -> str:
    """A line per command: seconds and megabytes at every size."""
    sizes = sorted({result.rows for result in results})
    found = {(result.what, result.rows): result for result in results}
    head = "| command | " + " | ".join(f"{size:,} rows" for size in sizes) + " |"
    lines = [head, "|---|" + "---:|" * len(sizes)]
    for what in dict.fromkeys(result.what for result in results):
        cells = [found.get((what, size)) for size in sizes]
        texts = ["-" if one is None else f"{one.seconds:.1f} s, {one.megabytes:.0f} MB" for one in cells]
        lines.append(f"| {what} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=list(SIZES), help="Sizes, over all arms.")
    parser.add_argument(
        "--only", nargs="+", choices=("rows", "verify", "compact", "gate", "report"),
        default=["rows", "verify", "gate", "report", "compact"],
    )  # fmt: skip
    parser.add_argument("--folder", type=Path, help="Keep runs here, and use those that are there.")
    asked = parser.parse_args()
    place = Path(tempfile.mkdtemp()) if asked.folder is None else asked.folder
    place.mkdir(parents=True, exist_ok=True)
    results: list[Measured] = []
    try:
        for rows in asked.rows:
            run = place / f"run-{rows}"
            started = time.perf_counter()
            if not run.exists():
                making = ["-m", "benchmarks.large_runs", "--rows", str(rows), "--out", str(run)]
                subprocess.run([sys.executable, *making], stdout=subprocess.DEVNULL, check=True)
                print(f"{rows:,} rows were made in {time.perf_counter() - started:.1f} s", file=sys.stderr)
            results += measure(run, rows, asked.only, place)
            print(size_table(results), flush=True)
    finally:
        if asked.folder is None:
            shutil.rmtree(place)


if __name__ == "__main__":
    main()
