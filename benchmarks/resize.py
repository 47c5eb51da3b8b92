"""A smaller image against pruned ones, at the same budgets: what the embedded reader still answers, and why.

    python benchmarks/resize.py [--pages 100] [--keep 0.25 0.3 0.41 0.5] [--out FOLDER]
    python benchmarks/resize.py --probes receipts.jsonl --images receipts [--model CHECKPOINT]

Accuracy, false alarms and coverage with 95 % intervals over pages, the tokens that the language model really read (a
smaller image has a square number of them on these square pages), the vision tower's time per page, and the seconds of
the whole audit. The reader was trained on pages of 14 x 14 tokens and no others: how much it loses on smaller ones is
its own affair, but that coverage does not show the loss is not. ``--out`` keeps the run folder; run the same command
again and it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
from audited_set import add_options, name_of, settings
from rich.console import Console
from rich.table import Table

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.commands.leaderboard import interval
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import arm_summary

SELECTORS = ("resize", "target", "divprune", "dart", "random", "grid")
SHOWN = [name for name in ("accuracy", "hfpr", "pos_ecr", "unsupported", "legibility") if name in METRICS]


def audited(keeps: list[str], out: Path, subject: dict[str, Any]) -> pd.DataFrame:
    arms = ["full", *(f"{name}:{keep}" for keep in keeps for name in SELECTORS)]
    return audit(AuditConfig(arms=arms, dtype="float32", out=out, **subject)).frame()


def printed(rows: pd.DataFrame, subject: str, seconds: float) -> Table:
    """One line per arm; a budget's arms stand together."""
    spent = rows.groupby("arm", sort=False)[["k_tokens", "vision_ms"]].mean()
    pages = rows["image_id"].nunique()
    labels = (METRICS[name].label for name in SHOWN)
    title = f"{subject}, {pages} pages, {len(rows)} rows in {seconds:.0f} s"
    table = Table("arm", "tokens", *labels, "vision ms", title=title)
    for line in arm_summary(rows, metrics=SHOWN).to_dict("records"):
        tokens, vision = spent.loc[line["arm"]]
        table.add_row(line["arm"], f"{tokens:.0f}", *(interval(line, name) for name in SHOWN), f"{vision:.0f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--keep", nargs="+", default=["0.25", "0.3", "0.41", "0.5"], help="kept shares, or 81t")
    parser.add_argument("--out", type=Path, help="run folder to keep; a temporary one if left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        rows = audited(options.keep, options.out or Path(folder) / "run", settings(options))
        table = printed(rows, name_of(options), time.perf_counter() - started)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
