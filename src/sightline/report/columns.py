"""Columns and rows of the report's tables: metrics, arms in words, panels, runs under one another."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from sightline.core.selection import PER_TILE, Regime
from sightline.core.table import Table, TableColumn, format_range, format_value
from sightline.errors import SightlineError
from sightline.rows.source import Audited, Source
from sightline.statistics.arm_rows import as_names
from sightline.statistics.metrics import METRICS, AnswerKind, DisplayGroup, Metric, metrics_shown_in

# Arms and shares as sentences spell them.


def family(arm_name: str) -> str:
    """An arm without its budget: ``scope:0.4:alpha=0`` and ``scope:0.3:alpha=0`` are both ``scope:alpha=0``.

    What a budget is counted over is no matter of size and stays: ``scope:0.4/tile`` is ``scope/tile``. An engine's own
    switches are amounts where they are whole numbers: ``engine:pruning_ratio=30,variant=paper`` is
    ``engine:pruning_ratio,variant=paper``.
    """
    name, *rest = arm_name.split(":")
    if name == "engine":
        return ":".join([name, *(re.sub(r"=\d+(?=,|$)", "", each) for each in rest)])
    budget = re.fullmatch(rf"[\d.eE+-]+t?({PER_TILE})?", rest[0]) if rest else None
    return ":".join([name, *rest] if budget is None else [name + (budget[1] or ""), *rest[1:]])


def listed(names: Sequence[str], most: int) -> str:
    """``a, b and c``, or ``a, b, c and 4 others`` where there are more than ``most``."""
    shown = list(names[:most]) if len(names) > most + 1 else list(names)
    if len(shown) < len(names):
        shown.append(f"{len(names) - len(shown)} others")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def share(value: float) -> str:
    """A percentage without decimals; what is not quite nothing or everything does not read as such."""
    if 0 < value < 0.005:
        return "<1%"
    return ">99%" if 0.995 < value < 1 else f"{100 * value:.0f}%"


# What all intervention tables share: made run by run, one run's problem left out in words, and intervals as sentences.
#
# A table whose rows no run has is passed over; one that no run can make raises the reasons; anything between says what
# it lacks.

FEWER_DRAWS = 1_000
"""For tables of hundreds of intervals, most of which rank and regress anew in every draw; captions say so."""

Make = Callable[[Audited], pd.DataFrame]
LEFT_OUT = "left_out"
"""What a frame of several runs has among its attributes: how a caption ends."""


class NoRowsError(Exception):
    """No run has the rows that a table is made of: there is nothing to say about it."""


def collect(
    source: Source, wanted: Callable[[pd.DataFrame], bool], make: Make, arms: Sequence[str] = ("arm",)
) -> pd.DataFrame:
    """The tables of all runs that have the wanted rows, under one another; its caption will say which runs failed.

    ``arms`` are the columns that hold arm names; they get the run's name in front, as everywhere in the report.
    """
    frames: list[pd.DataFrame] = []
    problems: list[str] = []
    for audited in source.runs:
        if not wanted(audited.rows):
            continue
        try:
            made = make(audited)
        except SightlineError as error:
            problems.append(audited.said(error))
            continue
        for column in made.columns.intersection(list(arms)):
            made[column] = in_report(audited, made[column])
        frames.append(made)
    if not frames:
        raise SightlineError("; ".join(problems)) if problems else NoRowsError
    found = pd.concat(frames, ignore_index=True)
    found.attrs[LEFT_OUT] = f" Left out: {'; '.join(problems)}." if problems else ""
    return found


def in_report(audited: Audited, names: pd.Series[str]) -> pd.Series[str]:
    """Arm names as the report has them: with the run in front when there are several."""
    return f"{audited.name} · " + names.astype(str) if audited.name else names


def has(column: str, *values: str) -> Callable[[pd.DataFrame], bool]:
    """Whether some row has one of these values in a column."""
    return lambda rows: bool(rows[column].isin(values).any())


def has_other(column: str, *values: str) -> Callable[[pd.DataFrame], bool]:
    """Whether some row has another value than these in a column."""
    return lambda rows: not set(rows[column].dropna().unique()) <= set(values)


def has_selectors(*names: str) -> Callable[[pd.DataFrame], bool]:
    return lambda rows: set(names) <= set(rows["selector"].unique())


def signed(line: Any, key: str) -> str:
    """``−0.031 (−0.094 to +0.031, holds zero)``: a value, its interval, and whether that tells it from nothing."""
    low, high = float(line[f"{key}_low"]), float(line[f"{key}_high"])
    interval = format_range(low, high, "signed")
    if interval and not excludes_zero(low, high):
        interval += ", holds zero"
    return format_value(line[key], "signed") + (f" ({interval})" if interval else "")


def amount(line: Any, key: str) -> str:
    """``0.031 (0.011–0.051)``: how large a value is, whichever way it points; the words around it say which."""
    value, low, high = (float(line[name]) for name in (key, f"{key}_low", f"{key}_high"))
    if value < 0:
        value, low, high = -value, -high, -low
    interval = format_range(low, high, "score" if excludes_zero(low, high) else "signed")
    if interval and not excludes_zero(low, high):
        interval += ", holds zero"
    return format_value(value, "score") + (f" ({interval})" if interval else "")


def top(frame: pd.DataFrame, values: pd.Series[Any]) -> pd.Series[Any]:
    """The line with the largest value."""
    return frame.iloc[int(np.nanargmax(values.to_numpy(dtype=float)))]


def excludes_zero(low: float, high: float) -> bool:
    return math.isfinite(low) and math.isfinite(high) and not low <= 0.0 <= high


def first_choice(source: Source, frame: pd.DataFrame) -> str:
    """The arm a sentence is about: Full where the table has it, else the first one."""
    full = {audited.full for audited in source.runs}
    arms = [str(arm) for arm in frame["arm"].unique()]
    return next((arm for arm in arms if arm in full), arms[0])


# Metrics as columns: heading, tooltip and interval come from the metric itself.

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
    told, in_words = shown_metrics(group, arms), "yes or no" not in answers_given(arms)
    return [
        replace(
            column_of(metric),
            title=_label(metric, in_words),
            help=reworded_for_texts(metric.help) if in_words else metric.help,
        )
        for metric in told
    ]


def shown_metrics(group: DisplayGroup, arms: pd.DataFrame) -> list[Metric]:
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
    columns = set(arms.columns[arms.notna().any()])
    valued = {metric.answers for metric in METRICS.values() if metric.name in columns}
    return valued | {"any"} if "words" in valued else {"any", "yes or no"}


def heading(metric: Metric, arms: pd.DataFrame) -> str:
    """What a metric is called in a table about these arms."""
    return headings([metric], arms)[metric.name]


def headings(metrics: Iterable[Metric], arms: pd.DataFrame) -> dict[str, str]:
    """What metrics are called in a table about these arms, by name; the arms are looked at once for all of them."""
    in_words = "yes or no" not in answers_given(arms)
    return {metric.name: _label(metric, in_words) for metric in metrics}


def _label(metric: Metric, in_words: bool) -> str:
    return metric.label_of_words if in_words and metric.label_of_words else metric.label


def in_these_words(text: str, arms: pd.DataFrame) -> str:
    """A metric's definition in a table about these arms: where nothing is answered yes or no, nothing is a positive."""
    return text if "yes or no" in answers_given(arms) else reworded_for_texts(text)


def reworded_for_texts(text: str) -> str:
    """A metric's definition as it reads of answers in words."""
    for said, meant in SAID_OF_WORDS:
        text = text.replace(said, meant)
    return text


def drop_unanswered_metrics(differences: pd.DataFrame) -> pd.DataFrame:
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


@cache
def vocabulary() -> Mapping[str, TableColumn]:
    """Key -> its column: ``columns.toml``, where every key has one title, kind and explanation."""
    told = tomllib.loads((Path(__file__).parent / "columns.toml").read_text(encoding="utf-8"))
    return {key: TableColumn(key, **entry) for key, entry in told.items()}


def table_column(key: str, **changes: Any) -> TableColumn:
    """The column of a key as the vocabulary has it, or of a metric, with whatever this table says otherwise."""
    known = vocabulary().get(key) or TableColumn(key, METRICS[key].label, "score")
    return replace(known, **changes)


def table_columns(*named: str | TableColumn) -> list[TableColumn]:
    """Columns by their keys: ``table_columns("arm n hfpr", table_column("change", interval=True))``."""
    found: list[TableColumn] = []
    for each in named:
        found += [each] if isinstance(each, TableColumn) else map(table_column, each.split())
    return found


@cache
def declared_tables() -> Mapping[str, Mapping[str, Any]]:
    """Name of a table -> what stands around its lines: ``tables.toml``, which says what each entry means."""
    return tomllib.loads((Path(__file__).parent / "tables.toml").read_text(encoding="utf-8"))


HandedOver = Mapping[str, Iterable[str | TableColumn]]
"""Columns that a declaration leaves to the code, by the name of their place."""


def build_table(
    name: str,
    frame: pd.DataFrame,
    source: Source | None = None,
    *,
    columns: HandedOver = MappingProxyType({}),
    sentence: str = "",
    left_out: str = "",
    unprinted: Iterable[str] = (),
    filter: str = "",
    **words: object,
) -> Table:
    """A table as it is declared, about these lines.

    ``columns`` and ``words`` fill the places that the declaration leaves to the code; ``left_out`` ends the caption.
    The ``source`` says whether answers are yes or no, and at which threshold, where the declaration asks for it.
    """
    told = declared_tables()[name]
    shown: list[TableColumn] = []
    for each in told["columns"]:
        if isinstance(each, str):
            shown += table_columns(*(columns[each[1:-1]] if each.startswith("{") else [each]))
        else:
            shown.append(table_column(**each))
    caption = told["caption"]
    if source is not None and not source.yes_or_no:
        caption = told.get("caption_of_words", caption)
    caption = caption.format(**words)
    if source is not None and told.get("answers_at"):
        caption += source.answers_at
    if source is not None and told.get("fitting"):
        shown = fitting_columns(source, shown, frame)
    return Table(
        name,
        told["title"],
        caption + frame.attrs.get(LEFT_OUT, left_out),
        shown,
        frame,
        filter=told.get("filter", filter),
        sentence=sentence,
        unprinted=(*told.get("unprinted", ()), *unprinted),
        panel=told.get("panel", ""),
        repeated=tuple(told.get("repeated", ())),
    )


def typographic(words: pd.Series[str]) -> pd.Series[str]:
    """Sentences with a real minus before digits, as the numbers of the tables have it."""
    return words.str.replace(r"(?<=[ (])-(?=[\d.])", "−", regex=True)


# Tables with fixed columns, about answers that are not yes or no: without what such answers cannot have.


def fitting_columns(source: Source, columns: list[TableColumn], frame: pd.DataFrame) -> list[TableColumn]:
    """The columns as they are where any run is about yes and no.

    Elsewhere without those that no line has a value in, such as false alarms, and with metrics called as they are of
    answers in words.
    """
    if source.yes_or_no:
        return columns
    valued = (column for column in columns if frame[column.key].notna().any())
    return [replace(column, title=_title(column), help=reworded_for_texts(column.help)) for column in valued]


def _title(column: TableColumn) -> str:
    """A heading that is a metric's label as it is of words; others, and those of metrics with one label, stay."""
    if column.key not in METRICS or column.title != METRICS[column.key].label:
        return column.title
    return METRICS[column.key].label_of_words or column.title


# What stands together in a table: arms are compared within their regime, and every run has panels of its own.

BOX_FREE = "A. Box-free methods and controls"
ASSISTED = "B. Detector-assisted"
ORACLES = "C. Annotation-box oracles: diagnostics, not a deployable ranking"
UNKNOWN = "D. What these read is not known here: replayed masks, methods that are not installed"
PANELS: dict[Regime, str] = {
    "full": BOX_FREE,
    "box-free method": BOX_FREE,
    "box-free control": BOX_FREE,
    "detector-assisted": ASSISTED,
    "oracle": ORACLES,
    "replay": UNKNOWN,
}
"""By regime. Full stands with those that it is the reference of: it reads no boxes either."""


def panel_of(regime: object) -> str:
    """The panel of a row's regime; rows of a method that is not installed here have none."""
    return next((heading for known, heading in PANELS.items() if known == regime), UNKNOWN)


def arm_facts(source: Source) -> pd.DataFrame:
    """Per arm of the report: ``arm_name`` (the run's own), ``run`` (empty when there is one), ``regime``, boxes."""
    told = ["arm", "arm_name", "regime", "box_source"]
    parts = [
        audited.frame[told].drop_duplicates("arm").apply(as_names).assign(run=audited.name) for audited in source.runs
    ]
    return pd.concat(parts, ignore_index=True).set_index("arm")


def in_panels(frame: pd.DataFrame, facts: pd.DataFrame, *, by_run: bool = True) -> pd.DataFrame:
    """The lines of a table with ``regime``, ``arm_name`` and ``panel``, those of a panel together, else in order.

    ``facts`` are ``arm_facts``. With ``by_run`` the runs of a report have their own panels, one run after the other,
    and the arm needs no run in front of it.
    """
    own = facts.loc[frame["arm"]]
    headings = own["regime"].map(panel_of)
    if by_run:
        names, run = own["arm_name"], own["run"].where(own["run"] == "", own["run"] + " · ")
    else:
        names, run = frame["arm"], pd.Series("", index=own.index)
    found = frame.assign(regime=own["regime"].to_numpy(), arm_name=names.to_numpy(), panel=(run + headings).to_numpy())
    runs = list(dict.fromkeys(run))
    place = [(runs.index(r), h) for r, h in zip(run, headings, strict=True)]
    return found.iloc[sorted(range(len(found)), key=lambda i: place[i])].reset_index(drop=True)


def lines_by_arm(parts: Sequence[pd.DataFrame], source: Source) -> pd.DataFrame:
    """Tables of which an arm may have several lines as one: those of an arm together, arms in the report's order."""
    places = {str(arm): place for place, arm in enumerate(source.frame["arm"].unique())}
    frame = pd.concat(parts, ignore_index=True)
    frame = frame.sort_values("arm", key=lambda arms: arms.map(places), kind="stable", ignore_index=True)
    return in_panels(frame, arm_facts(source))
