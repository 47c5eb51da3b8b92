"""What a run says at a glance, on a terminal."""

from __future__ import annotations

import pandas as pd
from rich.console import Console
from rich.table import Table

from sightline.report.metric_columns import metrics_told
from sightline.statistics.metrics import METRICS, metrics_shown_in
from sightline.statistics.out_of_sight import out_of_sight
from sightline.statistics.plain_rows import plain_rows
from sightline.statistics.summaries import arm_points
from sightline.store import Run

TIMES = {"select ms": ("select_ms", "signal_ms"), "language ms": ("language_ms",)}
"""Mean milliseconds per row: column -> the stages it adds up."""


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One line per arm: its metrics by their labels, then its times."""
    names = [metric.name for metric in metrics_shown_in("terminal")]
    records = []
    for arm, rows in frame.groupby("arm", sort=False):
        times = {title: sum(float(rows[stage].mean()) for stage in stages) for title, stages in TIMES.items()}
        records.append({"arm": arm, **arm_points(rows, names), **times})
    arms = pd.DataFrame(records)
    told = metrics_told("terminal", arms)
    return arms[["arm", *(metric.name for metric in told), *TIMES]].rename(columns={m.name: m.label for m in told})


def print_summary(run: Run) -> None:
    frame = run.frame()
    plain = plain_rows(frame)
    frame = frame if plain.empty else plain
    manifest = run.manifest
    console = Console()
    console.print(_printed(summary(frame)))
    probes, images = frame["probe_id"].nunique(), frame["image_id"].nunique()
    unsupported = METRICS["unsupported"]
    console.print(f"{unsupported.label}: {unsupported.definition}; ms per row", markup=False, highlight=False)
    hidden = out_of_sight(frame)
    if hidden:
        console.print(hidden, markup=False, highlight=False)
    console.print(
        f"{manifest['model']} ({manifest['model_type']}, {manifest['dtype']}, {manifest['device']}, "
        f"positions {manifest['positions']}): {probes} probes on {images} images; rows in {run.path}",
        markup=False,
        highlight=False,
    )


def _printed(lines: pd.DataFrame) -> Table:
    """Numbers stay whole in any width: headings break between words, and long arms fold instead."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("arm", overflow="fold")
    for column in lines.columns[1:]:
        table.add_column(str(column).replace(" ", "\n"), justify="right", no_wrap=True)
    for record in lines.itertuples(index=False):
        values = [
            f"{value:.1f}" if str(column).endswith("ms") else f"{value:.3f}"
            for column, value in zip(lines.columns[1:], record[1:], strict=True)
        ]
        table.add_row(str(record[0]), *("-" if value == "nan" else value for value in values))
    return table
