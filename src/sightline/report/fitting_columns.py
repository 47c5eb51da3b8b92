"""Tables with fixed columns, about answers that are not yes or no: without what such answers cannot have."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from sightline.report.metric_columns import of_words
from sightline.report.source import Source
from sightline.report.table import TableColumn
from sightline.statistics.metrics import METRICS


def fitting_columns(source: Source, columns: list[TableColumn], frame: pd.DataFrame) -> list[TableColumn]:
    """The columns as they are where any run is about yes and no.

    Elsewhere without those that no line has a value in, such as false alarms, and with metrics called as they are of
    answers in words.
    """
    if source.yes_or_no:
        return columns
    valued = (column for column in columns if frame[column.key].notna().any())
    return [replace(column, title=_title(column), help=of_words(column.help)) for column in valued]


def _title(column: TableColumn) -> str:
    """A heading that is a metric's label as it is of words; others, and those of metrics with one label, stay."""
    if column.key not in METRICS or column.title != METRICS[column.key].label:
        return column.title
    return METRICS[column.key].label_of_words or column.title
