"""One model's standings: at every budget who is how good, who is better than chance, and whom nothing tells apart.

All arms of a model see the same seeded draws of its images, so that every difference here is paired by construction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sightline.leaderboard.lineup import FULL, RANDOM, Entry
from sightline.report.panels import panel_of
from sightline.statistics.arrays import FloatArray
from sightline.statistics.bootstrap import replicate
from sightline.statistics.intervals import percentile_interval
from sightline.statistics.metrics import Metric
from sightline.statistics.summaries import arm_rows, arm_summary

COVERAGE = "pos_ecr"
"""What the frontier sets beside the metric that ranks."""
Line = dict[str, Any]
"""What is known of one entry; None where a number has no value."""


@dataclass(frozen=True)
class Standings:
    """Every entry of one model."""

    full: Line
    by_budget: Mapping[str, list[Line]]
    """Panel after panel, best first."""
    draws: Mapping[str, FloatArray]
    """(draws,) of the metric that ranks, by arm."""
    images: tuple[str, ...]
    """What was resampled: draws of models with the same images are paired as well."""


def standings(
    rows: pd.DataFrame, entries: Sequence[Entry], by: Metric, metrics: Sequence[Metric], *, draws: int, seed: int
) -> Standings:
    """``rows`` are the plain rows of all entries; ``by`` is what ranks, ``metrics`` are what else is told."""
    shown = [metric.name for metric in dict.fromkeys([by, *metrics])]
    arms = {entry.arm: rows[rows["arm"] == entry.arm] for entry in entries}
    summary = arm_summary(pd.concat(arms.values()), metrics=shown, draws=draws, seed=seed).set_index("arm")
    drawn = {arm: replicate(arm_rows(part), [by], draws=draws, seed=seed)[:, 0] for arm, part in arms.items()}
    lines = {entry.arm: _line(entry, arms[entry.arm], summary.loc[entry.arm], shown) for entry in entries}
    by_budget: dict[str, list[Line]] = {}
    for budget in dict.fromkeys(entry.budget for entry in entries if entry.budget):
        chance = next(entry.arm for entry in entries if entry.method == RANDOM and entry.budget == budget)
        for entry in entries:
            if entry.budget == budget:
                lines[entry.arm] |= _difference("gain", by.name, lines, drawn, entry.arm, chance)
        here = [lines[entry.arm] for entry in entries if entry.budget == budget]
        by_budget[budget] = _ranked(here, by, drawn)
    (full,) = (lines[entry.arm] for entry in entries if entry.method == FULL)
    images = tuple(sorted(arms[FULL]["image_id"].astype(str).unique()))
    return Standings(full, by_budget, drawn, images)


def _line(entry: Entry, rows: pd.DataFrame, summary: pd.Series[Any], shown: Sequence[str]) -> Line:
    first = rows.iloc[0]
    metrics = {f"{name}{end}": number(summary[f"{name}{end}"]) for name in shown for end in ("", "_low", "_high")}
    return {
        "method": entry.method,
        "arm": entry.arm,
        "role": str(first["role"]),
        "regime": str(first["regime"]),
        "panel": panel_of(first["regime"]),
        "keep": number(rows["keep"].mean()),
        **metrics,
        "selection_ms": number(_selection_ms(rows).median()),
    }


def _selection_ms(rows: pd.DataFrame) -> pd.Series[float]:
    """What choosing tokens took: the signals that a method asked for, and the method itself."""
    return rows["signal_ms"].astype(float).fillna(0.0) + rows["select_ms"].astype(float).fillna(0.0)


def _difference(
    key: str, by: str, lines: Mapping[str, Line], drawn: Mapping[str, FloatArray], arm: str, other: str
) -> Line:
    """``key``, ``key_low``, ``key_high``: arm - other in the metric that ranks, paired."""
    mine, theirs = lines[arm][by], lines[other][by]
    if mine is None or theirs is None:
        return _nothing(key)
    low, high = percentile_interval(drawn[arm] - drawn[other])
    return {key: number(mine - theirs), f"{key}_low": number(low), f"{key}_high": number(high)}


def _nothing(key: str) -> Line:
    return {key: None, f"{key}_low": None, f"{key}_high": None}


def _ranked(lines: Sequence[Line], by: Metric, drawn: Mapping[str, FloatArray]) -> list[Line]:
    """Panel after panel, best first, each with its ``rank``, its ``lead`` over the next and its ``gap`` to the first.

    ``tied_with_next`` and ``tied_with_first`` say where the intervals of these hold zero. Equal values share a rank.
    What has no value has no rank and stands last.
    """
    sign = -1.0 if by.better == "higher" else 1.0
    found: list[Line] = []
    for panel in sorted({line["panel"] for line in lines}):
        own = [line for line in lines if line["panel"] == panel]
        own.sort(key=lambda line: (line[by.name] is None, sign * (line[by.name] or 0.0), line["method"]))
        named = {line["arm"]: line for line in own}
        for line, below in zip(own, [*own[1:], None], strict=True):
            value = line[by.name]
            line["rank"] = None if value is None else 1 + sum(sign * other < sign * value for other in _values(own, by))
            for key, other, tie in (("lead", below, "tied_with_next"), ("gap", own[0], "tied_with_first")):
                found_none = other is None or other is line
                line |= (
                    _nothing(key) if found_none else _difference(key, by.name, named, drawn, line["arm"], other["arm"])
                )
                line[tie] = line[key] is not None and not excludes_zero(line[f"{key}_low"], line[f"{key}_high"])
            line["on_frontier"] = not any(_dominates(other, line, by) for other in own)
        found += own
    return found


def _values(lines: Sequence[Line], by: Metric) -> list[float]:
    return [line[by.name] for line in lines if line[by.name] is not None]


def _dominates(other: Line, line: Line, by: Metric) -> bool:
    """Whether another entry is at least as good in answers and in coverage, and better in one of them."""
    sign = 1.0 if by.better == "higher" else -1.0
    pairs = [(sign * _or_worst(line[by.name], sign), sign * _or_worst(other[by.name], sign))]
    pairs.append((_or_worst(line.get(COVERAGE), 1.0), _or_worst(other.get(COVERAGE), 1.0)))
    return all(theirs >= mine for mine, theirs in pairs) and any(theirs > mine for mine, theirs in pairs)


def _or_worst(value: float | None, sign: float) -> float:
    return -sign * math.inf if value is None else value


def excludes_zero(low: float | None, high: float | None) -> bool:
    """Whether an interval tells a difference from nothing."""
    return low is not None and high is not None and not low <= 0.0 <= high


def number(value: Any) -> float | None:
    """As JSON has it: six decimals, which no table prints and no platform rounds differently; None for no value."""
    return round(float(value), 6) if value is not None and np.isfinite(float(value)) else None
