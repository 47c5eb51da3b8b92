"""What all intervention tables share: made run by run, one run's problem left out in words, and intervals as sentences.

A table whose rows no run has is None; one that no run can make raises the reasons; anything between says what it lacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sightline.errors import SightlineError
from sightline.report.source import Audited, Source
from sightline.report.table import format_range, format_value

FEWER_DRAWS = 1_000
"""For tables of hundreds of intervals, most of which rank and regress anew in every draw; captions say so."""

Make = Callable[[Audited], pd.DataFrame]


def collect(
    source: Source, wanted: Callable[[pd.DataFrame], bool], make: Make, arms: Sequence[str] = ("arm",)
) -> tuple[pd.DataFrame, str] | None:
    """The tables of all runs that have the wanted rows under one another, and a sentence about those that failed.

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
            problems.append(f"{audited.name}: {error}" if audited.name else str(error))
            continue
        for column in made.columns.intersection(list(arms)):
            made[column] = in_report(audited, made[column])
        frames.append(made)
    if frames:
        left_out = f" Left out: {'; '.join(problems)}." if problems else ""
        return pd.concat(frames, ignore_index=True), left_out
    if problems:
        raise SightlineError("; ".join(problems))
    return None


def in_report(audited: Audited, names: pd.Series[str]) -> pd.Series[str]:
    """Arm names as the report has them: with the run in front when there are several."""
    return f"{audited.name} · " + names.astype(str) if audited.name else names


def has_intervention(*names: str) -> Callable[[pd.DataFrame], bool]:
    return lambda rows: bool(rows["intervention"].isin(names).any())


def has_kind(*kinds: str) -> Callable[[pd.DataFrame], bool]:
    return lambda rows: bool(rows["kind"].isin(kinds).any())


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
