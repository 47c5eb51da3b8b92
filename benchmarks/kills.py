"""Kills workers and drivers of every launcher at random moments, and counts what that did to the rows.

    python -m benchmarks.kills --kills 200 [--launcher inline --launcher queue] [--seed 0]

Small audits of a tiny checkpoint are run again and again; each is killed some times, run to its end and compared with
an undisturbed run, value by value, times aside. A kill counts when it hit a living process. The exit code is 1 if a row
was lost, changed or written twice, or if anything was left behind.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.checks.demo import asset
from tests.faults.killing import WAYS, Killer, Tally

TINY = Path(__file__).parents[1] / "tests" / "data" / "tiny" / "llava"
AUDIT: dict[str, Any] = {
    "arms": ["full", "target:0.3", "random:0.3", "grid:0.3", "full+blank", "target:0.3+blank"],
    "limit": 8,
    "shard_images": 1,
    "threads": 1,
}
"""Two versions of eight images: sixteen tasks, forty-eight files. One thread each: their number changes last bits."""


def small_audit(place: Path) -> AuditConfig:
    scenes = asset("scenes", "confirmation")
    given = {"model": str(TINY), "probes": scenes / "probes.jsonl", "images": scenes / "images", "out": place / "run"}
    return AuditConfig(**given, **AUDIT, device="cpu", dtype="float32", matched_controls=False)


def undisturbed(settings: AuditConfig) -> tuple[pd.DataFrame, int]:
    """The rows that every run has to have in the end, and how many files they are in."""
    run = audit(settings)
    return run.frame(), len(list(run.path.glob("rows/*/*.parquet")))


def killed(launcher: str, kills: int, place: Path, seed: int) -> Tally:
    settings = small_audit(place)
    rows, files = undisturbed(settings)
    return Killer(launcher, settings, rows, files, seed).go_on_until(kills)


def line(tally: Tally) -> str:
    cells = (
        tally.launcher, tally.kills, tally.drivers, tally.workers, tally.commands, tally.runs, tally.rows,
        tally.lost, tally.changed, tally.doubled, tally.left_behind,
    )  # fmt: skip
    return "| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells) + " |"


HEAD = (
    "launcher", "kills", "of drivers", "of workers", "commands", "runs", "rows", "lost", "changed", "twice",
    "left behind",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="over all launchers together")
    parser.add_argument("--launcher", action="append", choices=list(WAYS), help="all unless named")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    launchers = options.launcher or list(WAYS)
    print("| " + " | ".join(HEAD) + " |\n|" + " --- |" * len(HEAD), flush=True)
    harm = 0
    for number, launcher in enumerate(launchers):
        share = options.kills // len(launchers) + (number < options.kills % len(launchers))
        with tempfile.TemporaryDirectory() as place:
            tally = killed(launcher, share, Path(place), options.seed)
        harm += tally.harm
        print(line(tally), flush=True)
    return 1 if harm else 0


if __name__ == "__main__":
    sys.exit(main())
