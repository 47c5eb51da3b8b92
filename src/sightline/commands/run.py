"""``sightline run``, and what it says at a glance on a terminal when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sightline.auditing.config import AuditConfig, read_config
from sightline.commands.options import Overrides, with_options
from sightline.core.flags import HOW
from sightline.errors import SightlineError
from sightline.progress import say, waiting_for

if TYPE_CHECKING:
    import pandas as pd

    from sightline.progress import SafeConsole
    from sightline.rows.run import Run

TIMES = {"select ms": ("select_ms", "signal_ms"), "language ms": ("language_ms",)}
"""Mean milliseconds per row: column -> the stages it adds up."""
DRAWS = 2000
"""Bootstrap draws behind the one line that needs an interval."""


@with_options
def run(*, config: Path | None = None, given: Annotated[dict[str, Any], Overrides(AuditConfig, HOW)]) -> None:
    """Audit arms on a probe set. Kill it at any moment and run the same command again: finished shards are kept.

    Exit code 0: finished; 1: finished but for images that could not be read or work that was set aside; 2: error.
    """
    with waiting_for("starting", logged=False):
        settings = read_config(config, given)
        from sightline.auditing.audit import audit

    finished = audit(settings)
    print_summary(finished)
    if finished.failed or (finished.bad_images and not settings.skip_bad_images):
        raise typer.Exit(1)


def print_summary(run: Run) -> None:
    """The table, and in a line each what a reader of it must know."""
    from sightline.core.prefix import NO_CELLS
    from sightline.progress import SafeConsole
    from sightline.report.columns import reworded_for_texts
    from sightline.rows.reader import NO_REGIONS, fallback_note, sentence, truncation_note, unseen_evidence
    from sightline.rows.source import UNREAD
    from sightline.statistics.arm_rows import are_in_words, is_plain
    from sightline.statistics.metrics import METRICS
    from sightline.statistics.summaries import nothing_to_read

    frame = run.compact_frame(lambda column: column not in UNREAD)
    if frame.empty:
        raise SightlineError(f"no image could be read: {next(iter(run.bad_images.values()), 'the run has no rows')}")
    plain = is_plain(frame)
    frame = frame[plain] if plain.any() and not plain.all() else frame
    manifest = run.manifest
    console = SafeConsole(highlight=False)
    print_panels(console, summary(frame), frame)
    if nothing := nothing_to_read(frame, draws=DRAWS):
        console.print(sentence(nothing))
    probes, images = frame["probe_id"].nunique(), frame["image_id"].nunique()
    unsupported = METRICS["unsupported"]
    meaning = reworded_for_texts(unsupported.definition) if are_in_words(frame).any() else unsupported.definition
    console.print(f"{unsupported.label}: {meaning}; ms per row")
    if NO_CELLS in str(manifest.get("served_by")):
        console.print(NO_CELLS)
    if hidden := unseen_evidence(frame):
        console.print(hidden)
    if not frame["n_regions"].fillna(0).any():
        console.print(NO_REGIONS)
    positions = manifest["positions"] and f"positions {manifest['positions']}"
    known = [manifest[name] for name in ("model_type", "dtype", "device") if manifest[name]] + [
        positions or "an engine"
    ]
    console.print(f"{manifest['model']} ({', '.join(known)}): {probes} probes on {images} images; rows in {run.path}")
    if run.joined:
        say(f"note: {run.joined}", err=True)
    for line in (*truncation_note(frame), *fallback_note(frame), *([run.mixture] if run.mixture else [])):
        console.print(f"note: {line}")
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
    if not run.failed:
        say(f"next: sightline report {run.path} --out {run.path}-report, or sightline view {run.path}")


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One line per arm: its metrics by their labels, then its times."""
    import pandas as pd

    from sightline.report.columns import heading, shown_metrics
    from sightline.statistics.metrics import metrics_shown_in
    from sightline.statistics.summaries import arm_points

    names = [metric.name for metric in metrics_shown_in("terminal")]
    records = []
    for arm, rows in frame.groupby("arm", sort=False):
        times = {title: sum(float(rows[stage].mean()) for stage in stages) for title, stages in TIMES.items()}
        records.append({"arm": arm, **arm_points(rows, names), **times})
    arms = pd.DataFrame(records)
    told = shown_metrics("terminal", arms)
    return arms[["arm", *(metric.name for metric in told), *TIMES]].rename(
        columns={metric.name: heading(metric, arms) for metric in told}
    )


def print_panels(console: SafeConsole, lines: pd.DataFrame, frame: pd.DataFrame) -> None:
    """The lines of a summary as a table, oracles apart from methods as in the report."""
    from sightline.core.table import Table, TableColumn
    from sightline.report.columns import panel_of
    from sightline.statistics.arm_rows import as_names

    columns = [
        TableColumn("arm", "arm"),
        *(TableColumn(title, title, "number" if title in TIMES else "score") for title in map(str, lines.columns[1:])),
    ]
    panels = frame[["arm", "regime"]].drop_duplicates("arm").apply(as_names).set_index("arm")["regime"].map(panel_of)
    apart = lines.assign(panel=lines["arm"].map(panels)).sort_values("panel", kind="stable")
    Table("summary", "", "", columns, apart, panel="panel").terminal(console, gap=1)
