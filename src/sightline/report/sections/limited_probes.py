"""What limiting a report to some probes changes: the largest change of every metric."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from sightline.core.table import Table, format_value
from sightline.errors import SightlineError
from sightline.report.columns import table_column, table_columns
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.rows.source import Source
from sightline.statistics.metrics import METRICS, metrics_shown_in, point
from sightline.statistics.summaries import arm_rows


@SECTIONS.register("limited")
class LimitedProbes(SectionMaker):
    id = "limited"
    title = "What the limit changes"
    order = 12
    lead = "This report is about some of the probes that were audited. How far is it from one about all of them?"

    def fill(self, section: Section, context: Context) -> None:
        runs = [run for run in context.source.runs if run.unlimited is not None]
        if not runs:
            return
        if any(run.rule is not None for run in runs):
            section.notes.append("answers are read at chosen thresholds here, which all probes together may not have")
            return
        section.add(lambda: limit_table(context.source))


def filter_effects(every: pd.DataFrame, kept: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """One line per arm and metric: its value over all rows, over those that are kept, and the change.

    What cannot be computed on either side is left out.
    """
    lines = []
    for arm, own in every.groupby("arm", sort=False):
        chosen = kept[kept["arm"] == arm]
        if chosen.empty:
            continue
        sides = arm_rows(own), arm_rows(chosen)
        for name in metrics:
            whole, part = (point(METRICS[name], rows) for rows in sides)
            if math.isfinite(whole) and math.isfinite(part):
                lines.append({"arm": arm, "metric": name, "all": whole, "kept": part, "change": part - whole})
    return pd.DataFrame(lines, columns=["arm", "metric", "all", "kept", "change"])


def largest_changes(every: pd.DataFrame, kept: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """One line per metric: the arm whose value changes most, up or down."""
    found = filter_effects(every, kept, metrics)
    if found.empty:
        raise SightlineError("no metric can be computed both over all rows and over those that are kept")
    most = found.assign(size=found["change"].abs()).groupby("metric", sort=False)["size"].idxmax()
    return found.loc[most].reset_index(drop=True)


def limit_table(source: Source) -> Table:
    """Per run and metric the arm that changes most."""
    names = [metric.name for metric in metrics_shown_in("main")]
    parts = []
    for run in source.runs:
        if run.unlimited is not None:
            parts.append(largest_changes(run.unlimited, run.frame, names).assign(run=run.name))
    frame = pd.concat(parts, ignore_index=True)
    frame["title"] = frame["metric"].map(lambda name: METRICS[str(name)].label)
    most = max(frame.to_dict("records"), key=lambda line: abs(line["change"]))
    reading = (
        f"{most['title']} of {most['arm']} changes most, by {format_value(float(most['change']), 'signed')}: "
        f"{format_value(float(most['all']), 'score')} on all probes, {format_value(float(most['kept']), 'score')} here."
    )
    columns = table_columns(
        *(["run"] if len(source.runs) > 1 else []),
        "title arm",
        table_column("all", title="All probes", kind="score"),
        table_column("kept", title="These probes", kind="score"),
        "change",
    )
    caption = "Of every metric the arm whose value differs most, up or down, from its value on all audited probes."
    return Table("limited", "Largest change of every metric", caption, columns, frame, reading=reading)
