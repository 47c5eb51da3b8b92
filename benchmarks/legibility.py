"""Does legibility order {resize, prune, merge} by answer change better than coverage? On the reader, or where you say.

    python -m benchmarks.legibility [--pages 100] [--out runs/legibility] [--arm target:0.3 ...]
    python -m benchmarks.legibility --probes receipts.jsonl --images receipts [--model CHECKPOINT] --out runs/receipts

Prints accuracy, coverage, legibility and changed answers per arm, then the rank correlations over arms and answers.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
from benchmarks.audited_set import add_options, name_of, settings
from rich.console import Console
from rich.table import Table

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.report.sections.geometry import answer_changes, ordering_frame
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import arm_summary

PRUNED = [f"{name}:{keep}" for keep in (0.5, 0.3, 0.15) for name in ("target", "random", "grid")]
MERGED = [f"{name}:{keep}" for keep in (0.5, 0.3) for name in ("tome", "visionzip_qwen")]
SHRUNKEN = [f"resize:{side * side}t" for side in (12, 9, 7)]
"""Of the 14 x 14 tokens that the reader makes of a page."""
METRICS_SHOWN = ("accuracy", "pos_ecr", "legibility", "illegible")


def audited(out: Path, arms: list[str], subject: dict[str, Any]) -> pd.DataFrame:
    config = AuditConfig(out=out, arms=arms, matched_controls=False, device="cpu", dtype="float32", **subject)
    return audit(config).frame()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--out", type=Path, default=Path("runs/legibility"), help="run folder; resumed")
    parser.add_argument("--arm", action="append", help="arms besides full and resize; some of each kind if not given")
    options = parser.parse_args()
    arms = ["full", *(options.arm or [*PRUNED, *MERGED]), *SHRUNKEN]
    rows = audited(options.out, arms, settings(options))
    console = Console()
    console.print(f"{name_of(options)}: {rows['image_id'].nunique()} images, {rows['probe_id'].nunique()} probes")
    console.print(per_arm(rows), orderings(rows), sep="\n")


def per_arm(rows: pd.DataFrame) -> Table:
    summary = arm_summary(rows, metrics=["keep", *METRICS_SHOWN], draws=1000)
    changed = answer_changes(rows).groupby("arm")["changed"].mean()
    table = Table("arm", "keep", *(METRICS[name].label for name in METRICS_SHOWN), "changed", box=None)
    for line in summary.to_dict("records"):
        values = [line["keep"], *(line[name] for name in METRICS_SHOWN), changed.get(line["arm"], 0.0)]
        table.add_row(line["arm"], *(f"{value:.3f}" for value in values))
    return table


def orderings(rows: pd.DataFrame) -> Table:
    table = Table("over", "change", "n", "coverage", "legibility", "coverage - legibility", box=None)
    for line in ordering_frame(rows).to_dict("records"):
        values = [
            f"{line[key]:+.3f} ({line[f'{key}_low']:+.3f} to {line[f'{key}_high']:+.3f})"
            for key in ("ecr", "legibility", "advantage")
        ]
        table.add_row(line["over"], line["change"], str(line["n"]), *values)
    return table


if __name__ == "__main__":
    main()
