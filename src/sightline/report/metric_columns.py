"""Metrics as columns: heading, tooltip and interval come from the metric itself."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from sightline.report.table import TableColumn
from sightline.statistics.metrics import METRICS, Metric, metrics_shown_in
from sightline.statistics.metrics.base import AnswerKind, DisplayGroup

SAID_OF_WORDS = (
    ("correctly answered positives", "right answers"),
    ("correct positives", "right answers"),
    (", on positives", ""),
    (" on positives", ""),
    ("positives", "questions"),
)
"""What definitions say of yes and no -> what that is of words."""


def metric_columns(group: DisplayGroup, arms: pd.DataFrame | None = None) -> list[TableColumn]:
    """One column per metric of a table, with definition and interval; given arms, those that say something of them."""
    if arms is None:
        return [column_of(metric) for metric in metrics_shown_in(group)]
    return [
        replace(column_of(metric), title=heading(metric, arms), help=in_these_words(metric.help, arms))
        for metric in metrics_told(group, arms)
    ]


def metrics_told(group: DisplayGroup, arms: pd.DataFrame) -> list[Metric]:
    """The metrics of a table about these arms, without those that only repeat another (``Metric.repeats``) and those
    about answers of a kind that none of the arms gave (``Metric.answers``)."""
    kinds = answers_given(arms)
    return [
        metric
        for metric in metrics_shown_in(group)
        if metric.answers in kinds and (not metric.repeats or _differs(metric, arms))
    ]


def answers_given(arms: pd.DataFrame) -> set[AnswerKind]:
    """What answers the metrics of these arms are about; yes or no where nothing speaks for words."""
    valued = {metric.answers for metric in METRICS.values() if metric.name in arms and arms[metric.name].notna().any()}
    return valued | {"any"} if "words" in valued else {"any", "yes or no"}


def heading(metric: Metric, arms: pd.DataFrame) -> str:
    """What a metric is called in a table about these arms."""
    in_words = "yes or no" not in answers_given(arms)
    return metric.label_of_words if in_words and metric.label_of_words else metric.label


def in_these_words(text: str, arms: pd.DataFrame) -> str:
    """A metric's definition in a table about these arms: where nothing is answered yes or no, nothing is a positive."""
    return text if "yes or no" in answers_given(arms) else of_words(text)


def of_words(text: str) -> str:
    """A metric's definition as it reads of answers in words."""
    for said, meant in SAID_OF_WORDS:
        text = text.replace(said, meant)
    return text


def about_given_answers(differences: pd.DataFrame) -> pd.DataFrame:
    """Lines of ``paired_differences`` without the metrics of answers that neither side gave."""
    values = differences.pivot_table(index="arm", columns="metric", values="value", dropna=False)
    kinds = answers_given(values)
    told: pd.DataFrame = differences[differences["metric"].map(lambda name: METRICS[name].answers in kinds)]
    return told.reset_index(drop=True)


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
