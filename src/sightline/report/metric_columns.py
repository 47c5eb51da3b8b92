"""Metrics as columns: heading, tooltip and interval come from the metric itself."""

from __future__ import annotations

import pandas as pd

from sightline.report.table import TableColumn
from sightline.statistics.metrics import METRICS, Metric, metrics_shown_in
from sightline.statistics.metrics.base import DisplayGroup


def metric_columns(group: DisplayGroup, arms: pd.DataFrame | None = None) -> list[TableColumn]:
    """One column per metric of a table, with definition and interval; given arms, those that repeat no other."""
    shown = metrics_shown_in(group) if arms is None else metrics_told(group, arms)
    return [column_of(metric) for metric in shown]


def metrics_told(group: DisplayGroup, arms: pd.DataFrame) -> list[Metric]:
    """The metrics of a table about these arms, without those that only repeat another (``Metric.repeats``)."""
    return [metric for metric in metrics_shown_in(group) if not metric.repeats or _differs(metric, arms)]


def _differs(metric: Metric, arms: pd.DataFrame) -> bool:
    own, other = arms[metric.name], arms[metric.repeats]
    return bool((own.notna() & (own != other)).any())


def column_of(metric: Metric) -> TableColumn:
    """With its definition, and its interval if it has one."""
    return TableColumn(metric.name, metric.label, "score", interval=metric.with_interval, help=metric.help)


def metric_column(name: str, key: str = "") -> TableColumn:
    """A metric among the columns of another table, under its one label; ``key`` where the frame calls it otherwise."""
    return TableColumn(key or name, METRICS[name].label, "score")


def typographic(words: pd.Series[str]) -> pd.Series[str]:
    """Sentences with a real minus before digits, as the numbers of the tables have it."""
    return words.str.replace(r"(?<=[ (])-(?=[\d.])", "−", regex=True)
