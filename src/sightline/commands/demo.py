"""``sightline demo``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import pandas as pd

WIDE = 120
"""Columns of a terminal from which on a value and its interval fit beside each other."""


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run and the report.")] = Path("sightline-demo"),
    limit: Annotated[int | None, typer.Option(min=2, help="Only the first so many images.")] = None,
) -> None:
    """Audit eight arms of the shipped reader on the shipped scenes: minutes on a CPU, no network, no download.

    Run it again after an interruption and it goes on where it stopped.
    """
    from sightline.checks.shipped_demo import run_demo

    done = run_demo(out, limit=limit)
    print_table(done.summary, done.run.frame())
    typer.echo(f"rows: {done.run.path}")
    if done.picture is not None:
        typer.echo(f"picture of an unsupported answer: {done.picture}")
    typer.echo(f"report: {done.report}")


def print_table(summary: pd.DataFrame, rows: pd.DataFrame) -> None:
    """One line per arm: each metric of the demo with its 95 % interval, by the panels of the report."""
    from rich.console import Console
    from rich.table import Table

    from sightline.report.panels import panel_of
    from sightline.statistics.metrics import METRICS, metrics_shown_in

    metrics = metrics_shown_in("demo")
    console = Console()
    between = " " if console.width >= WIDE else "\n"
    panels = rows.drop_duplicates("arm").set_index("arm")["regime"].map(panel_of)
    for place, heading in enumerate(sorted(set(panels))):
        table = Table(box=None, pad_edge=False, show_header=place == 0)
        table.add_column("arm", no_wrap=True, min_width=int(summary["arm"].str.len().max()))
        for metric in metrics:
            table.add_column(metric.label, justify="right", min_width=12)
        for line in summary.to_dict("records"):
            if panels[line["arm"]] == heading:
                table.add_row(line["arm"], *(interval(line, metric.name, between) for metric in metrics))
        console.print(heading, style="italic", markup=False, highlight=False)
        console.print(table)
    unsupported = METRICS["unsupported"]
    console.print(f"95 % intervals over images. {unsupported.label}: {unsupported.definition}.")


def interval(line: Mapping[Any, Any], name: str, between: str = " ") -> str:
    value, low, high = line[name], line[f"{name}_low"], line[f"{name}_high"]
    return "-" if value != value else f"{value:.3f}{between}{low:.3f}..{high:.3f}"
