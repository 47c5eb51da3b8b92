"""``sightline demo``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sightline.progress import say

if TYPE_CHECKING:
    import pandas as pd

WIDE = 120
"""Columns of a terminal from which on a value and its interval fit beside each other."""
LONG_ARM = 20
"""Characters of an arm that folds on a narrow terminal."""


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run and the report.")] = Path("sightline-demo"),
    limit: Annotated[int | None, typer.Option(min=2, help="Only the first so many images.")] = None,
) -> None:
    """Audit the shipped reader on the shipped scenes, yes/no and open questions: minutes on a CPU, no network.

    Run it again after an interruption and it goes on where it stopped.
    """
    from sightline.checks.open_demo import run_open_demo
    from sightline.checks.shipped_demo import run_demo

    done = run_demo(out, limit=limit)
    print_table(done.summary, done.run.frame())
    say(f"rows: {done.run.path}")
    if done.picture is not None:
        say(f"picture of an unsupported answer: {done.picture}")
    say(f"report: {done.report}\n")
    spoken = run_open_demo(out, limit=limit)
    if spoken is None:
        return
    say("open questions: what the same reader says in its own words")
    print_table(spoken.summary, spoken.run.frame())
    say(f"rows: {spoken.run.path}")
    say(_pictured("an answer that was lost with its evidence", spoken.lost))
    say(_pictured("an answer that survives without its evidence", spoken.survived))
    say(f"report: {spoken.report}")


def _pictured(what: str, path: Path | None) -> str:
    return f"no picture of {what}: the run has none" if path is None else f"picture of {what}: {path}"


def print_table(summary: pd.DataFrame, rows: pd.DataFrame) -> None:
    """One line per arm: each metric of the demo with its 95 % interval, by the panels of the report."""
    from rich.table import Table

    from sightline.progress import SafeConsole
    from sightline.report.metric_columns import heading, in_these_words
    from sightline.report.panels import panel_of
    from sightline.statistics.metrics import METRICS

    metrics = [metric for metric in METRICS.values() if metric.name in summary]
    console = SafeConsole()
    between = " " if console.width >= WIDE else "\n"
    panels = rows.drop_duplicates("arm").set_index("arm")["regime"].map(panel_of)
    for place, panel in enumerate(sorted(set(panels))):
        table = Table(box=None, pad_edge=False, show_header=place == 0)
        table.add_column("arm", overflow="fold", min_width=min(LONG_ARM, int(summary["arm"].str.len().max())))
        for metric in metrics:
            table.add_column(heading(metric, summary), justify="right", min_width=12)
        for line in summary.to_dict("records"):
            if panels[line["arm"]] == panel:
                table.add_row(line["arm"], *(interval(line, metric.name, between) for metric in metrics))
        console.print(panel, style="italic", markup=False, highlight=False)
        console.print(table)
    unsupported = METRICS["unsupported"]
    meaning = in_these_words(unsupported.definition, summary)
    console.print(f"95 % intervals over images. {unsupported.label}: {meaning}.")


def interval(line: Mapping[Any, Any], name: str, between: str = " ") -> str:
    value, low, high = line[name], line[f"{name}_low"], line[f"{name}_high"]
    if low != low:  # it holds by construction, or there is nothing to resample
        return "-" if value != value else f"{value:.3f}"
    return f"{value:.3f}{between}{low:.3f}..{high:.3f}"
