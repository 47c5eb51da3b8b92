"""What a run says at a glance, on a terminal."""

from __future__ import annotations

import pandas as pd
from rich.table import Table

from sightline.errors import SightlineError
from sightline.progress import SafeConsole, say
from sightline.report.columns import heading, metrics_told, of_words, panel_of
from sightline.report.summary import sentence
from sightline.rows import Run
from sightline.rows.source import UNREAD
from sightline.rows.usable import cut_off, fallen_back
from sightline.rows.usable import unseen_evidence as out_of_sight
from sightline.statistics.arm_rows import are_in_words, as_names, is_plain
from sightline.statistics.metrics import METRICS, metrics_shown_in
from sightline.statistics.readable_answers import nothing_to_read
from sightline.statistics.summaries import arm_points

TIMES = {"select ms": ("select_ms", "signal_ms"), "language ms": ("language_ms",)}
"""Mean milliseconds per row: column -> the stages it adds up."""
LONG_ARM = 18
"""Characters of an arm that folds on a narrow terminal."""
DRAWS = 2000
"""Bootstrap draws behind the one line that needs an interval."""


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One line per arm: its metrics by their labels, then its times."""
    names = [metric.name for metric in metrics_shown_in("terminal")]
    records = []
    for arm, rows in frame.groupby("arm", sort=False):
        times = {title: sum(float(rows[stage].mean()) for stage in stages) for title, stages in TIMES.items()}
        records.append({"arm": arm, **arm_points(rows, names), **times})
    arms = pd.DataFrame(records)
    told = metrics_told("terminal", arms)
    return arms[["arm", *(metric.name for metric in told), *TIMES]].rename(
        columns={metric.name: heading(metric, arms) for metric in told}
    )


def print_summary(run: Run) -> None:
    frame = run.compact_frame(lambda column: column not in UNREAD)
    if frame.empty:
        raise SightlineError(f"no image could be read: {next(iter(run.bad_images.values()), 'the run has no rows')}")
    plain = is_plain(frame)
    frame = frame[plain] if plain.any() and not plain.all() else frame
    manifest = run.manifest
    console = SafeConsole()
    print_panels(console, summary(frame), frame)
    nothing = nothing_to_read(frame, draws=DRAWS)
    if nothing:
        console.print(sentence(nothing), markup=False, highlight=False)
    probes, images = frame["probe_id"].nunique(), frame["image_id"].nunique()
    unsupported = METRICS["unsupported"]
    meaning = of_words(unsupported.definition) if are_in_words(frame).any() else unsupported.definition
    console.print(f"{unsupported.label}: {meaning}; ms per row", markup=False, highlight=False)
    hidden = out_of_sight(frame)
    if hidden:
        console.print(hidden, markup=False, highlight=False)
    console.print(
        f"{manifest['model']} ({manifest['model_type']}, {manifest['dtype']}, {manifest['device']}, "
        f"positions {manifest['positions']}): {probes} probes on {images} images; rows in {run.path}",
        markup=False,
        highlight=False,
    )
    if run.joined:
        say(f"note: {run.joined}", err=True)
    for line in (*cut_off(frame), *fallen_back(frame), *([run.mixture] if run.mixture else [])):
        console.print(f"note: {line}", markup=False, highlight=False)
    for task, arms in run.failed.items():
        for arm, reason in arms.items():
            say(f"set aside: shard {task} under {arm}: {reason}", err=True)
    if run.failed:
        say(f"note: {run.unfinished}; run the same command to try again", err=True)
    for reason in run.bad_images.values():
        say(f"left out: {reason}", err=True)
    if run.bad_images and not run.failed:
        way_out = "" if run.left_out else "; mend them and run the same command, or accept it with --skip-bad-images"
        say(f"note: {run.left_out or run.unfinished}{way_out}", err=True)


def print_panels(console: SafeConsole, lines: pd.DataFrame, frame: pd.DataFrame) -> None:
    """The lines of a summary as a table, oracles apart from methods as in the report.

    Numbers stay whole in any width: headings break between words, and long arms fold instead.
    """
    columns = [str(column) for column in lines.columns[1:]]
    printed = [[str(arm), *map(_number, columns, values)] for arm, *values in lines.itertuples(index=False)]
    # The panels are tables of their own: what stands below one another has one width in all of them.
    widths = [max(len(row[i]) for row in printed) for i in range(len(columns) + 1)]
    panels = frame[["arm", "regime"]].drop_duplicates("arm").apply(as_names).set_index("arm")["regime"].map(panel_of)
    for place, panel in enumerate(sorted(set(panels))):
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=place == 0)
        table.add_column("arm", overflow="fold", min_width=min(LONG_ARM, widths[0]))
        for column, width in zip(columns, widths[1:], strict=True):
            words = column.split()
            table.add_column("\n".join(words), justify="right", no_wrap=True, min_width=max(width, *map(len, words)))
        for row in printed:
            if panels[row[0]] == panel:
                table.add_row(*row)
        console.print(panel, style="italic", markup=False, highlight=False)
        console.print(table)


def _number(column: str, value: float) -> str:
    if value != value:
        return "-"
    return f"{value:.1f}" if column.endswith("ms") else f"{value:.3f}"
