"""What a run says at a glance, on a terminal."""

from __future__ import annotations

import sys

import pandas as pd
from rich.console import Console
from rich.table import Table

from sightline.errors import SightlineError
from sightline.statistics.metrics import METRICS, metrics_shown_in
from sightline.statistics.plain_rows import plain_rows
from sightline.statistics.summaries import arm_points
from sightline.store import Run

TIMES = {"select ms": ("select_ms", "signal_ms"), "language ms": ("language_ms",)}
"""Mean milliseconds per row: column -> the stages it adds up."""


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One line per arm: its metrics by their labels, then its times."""
    metrics = metrics_shown_in("terminal")
    records = []
    for arm, rows in frame.groupby("arm", sort=False):
        points = arm_points(rows, [metric.name for metric in metrics])
        times = {title: sum(float(rows[stage].mean()) for stage in stages) for title, stages in TIMES.items()}
        records.append({"arm": arm, **{metric.label: points[metric.name] for metric in metrics}, **times})
    return pd.DataFrame(records)


def print_summary(run: Run) -> None:
    frame = run.frame()
    if frame.empty:
        raise SightlineError(f"no image could be read: {next(iter(run.bad_images.values()), 'the run has no rows')}")
    plain = plain_rows(frame)
    frame = frame if plain.empty else plain
    manifest = run.manifest
    console = Console()
    console.print(_printed(summary(frame)))
    probes, images = frame["probe_id"].nunique(), frame["image_id"].nunique()
    unsupported = METRICS["unsupported"]
    console.print(f"{unsupported.label}: {unsupported.definition}; ms per row", markup=False, highlight=False)
    console.print(
        f"{manifest['model']} ({manifest['model_type']}, {manifest['dtype']}, {manifest['device']}, "
        f"positions {manifest['positions']}): {probes} probes on {images} images; rows in {run.path}",
        markup=False,
        highlight=False,
    )
    for reason in run.bad_images.values():
        print(f"left out: {reason}", file=sys.stderr)
    if run.bad_images:
        way_out = "" if run.left_out else "; mend them and run the same command, or accept it with --skip-bad-images"
        print(f"note: {run.left_out or run.unfinished}{way_out}", file=sys.stderr)


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
