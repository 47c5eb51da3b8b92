"""A smaller image against pruned ones, at the same budgets: what the embedded reader still answers, and why.

    python -m benchmarks.resize [--pages 100] [--keep 0.25 0.3 0.41 0.5] [--out FOLDER]
    python -m benchmarks.resize --probes receipts.jsonl --images receipts [--model CHECKPOINT]

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
from benchmarks.audited_set import add_options, name_of, settings
from rich.console import Console

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.core.table import Table, TableColumn
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
    columns = [
        TableColumn("arm", "arm"),
        TableColumn("k_tokens", "tokens", "count"),
        *(TableColumn(name, METRICS[name].label, "score", interval=True) for name in SHOWN),
        TableColumn("vision_ms", "vision ms", "count"),
    ]
    title = f"{subject}, {pages} pages, {len(rows)} rows in {seconds:.0f} s"
    return Table("resize", title, "", columns, arm_summary(rows, metrics=SHOWN).join(spent, on="arm"))


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
    table.terminal(Console(width=140))


if __name__ == "__main__":
    main()
