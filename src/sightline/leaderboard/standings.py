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
from sightline.statistics.bootstrap import ImageSums, replicate_all
from sightline.statistics.intervals import ImageShares, interval
from sightline.statistics.metrics import METRICS, Metric, why_not
from sightline.statistics.summaries import arm_rows, arm_summary

COVERAGE = "pos_ecr"
"""What the frontier sets beside the metric that ranks."""
Line = dict[str, Any]
"""What is known of one entry; None where a number has no value."""


@dataclass(frozen=True)
class Drawn:
    """One arm in the metric that ranks."""

    draws: FloatArray
    """(draws,) values."""
    shares: ImageShares


@dataclass(frozen=True)
class Standings:
    """Every entry of one model."""

    full: Line
    by_budget: Mapping[str, list[Line]]
    """Panel after panel, best first."""
    drawn: Mapping[str, Drawn]
    """Of the metric that ranks, by arm that has a value of it."""
    images: tuple[str, ...]
    """What was resampled: draws of models with the same images are paired as well."""


def standings(
    rows: pd.DataFrame, entries: Sequence[Entry], by: Metric, metrics: Sequence[Metric], *, draws: int, seed: int
) -> Standings:
    """``rows`` are the plain rows of all entries; ``by`` is what ranks, ``metrics`` are what else is told."""
    shown = [metric.name for metric in dict.fromkeys([by, *metrics])]
    arms = {entry.arm: rows[rows["arm"] == entry.arm] for entry in entries}
    summary = arm_summary(pd.concat(arms.values()), metrics=shown, draws=draws, seed=seed)
    told = {str(line["arm"]): line for line in summary.to_dict("records")}
    drawn = _drawn(arms, by, draws, seed)
    lines = {entry.arm: _line(entry, arms[entry.arm], told[entry.arm], shown) for entry in entries}
    by_budget: dict[str, list[Line]] = {}
    for budget in dict.fromkeys(entry.budget for entry in entries if entry.budget):
        here = [lines[entry.arm] for entry in entries if entry.budget == budget]
        chance = next(line for line in here if line["method"] == RANDOM)
        for line in here:
            line |= _difference("gain", by, line, chance, drawn)
        by_budget[budget] = _ranked(here, by, drawn)
    (full,) = (lines[entry.arm] for entry in entries if entry.method == FULL)
    images = tuple(sorted(arms[FULL]["image_id"].astype(str).unique()))
    return Standings(full, by_budget, drawn, images)


def _drawn(arms: Mapping[str, pd.DataFrame], by: Metric, draws: int, seed: int) -> dict[str, Drawn]:
    rows = {arm: arm_rows(part) for arm, part in arms.items()}
    sums = {arm: ImageSums.of(one, [by]) for arm, one in rows.items() if not why_not(by, one)}
    values = replicate_all(list(sums.values()), draws=draws, seed=seed)
    return {arm: Drawn(drawn[:, 0], own.shares(by)) for (arm, own), drawn in zip(sums.items(), values, strict=True)}


def _line(entry: Entry, rows: pd.DataFrame, summary: Mapping[Any, Any], shown: Sequence[str]) -> Line:
    first = rows.iloc[0]
    metrics = {f"{name}{end}": number(summary[f"{name}{end}"]) for name in shown for end in ("", "_low", "_high")}
    return {
        "method": entry.method,
        "arm": entry.arm,
        "role": str(first["role"]),
        "regime": str(first["regime"]),
        "panel": panel_of(first["regime"]),
        "keep": number(rows["keep"].mean()),
        "keep_over_layers": number(rows["keep_layer_mean"].mean()),
        **metrics,
        "selection_ms": number(_selection_ms(rows).median()),
    }


def _selection_ms(rows: pd.DataFrame) -> pd.Series[float]:
    """What choosing tokens took: the signals that a method asked for, and the method itself."""
    return rows["signal_ms"].astype(float).fillna(0.0) + rows["select_ms"].astype(float).fillna(0.0)


def _ranked(lines: Sequence[Line], by: Metric, drawn: Mapping[str, Drawn]) -> list[Line]:
    """Panel after panel, best first, each with its ``rank``, its ``lead`` over the next and its ``gap`` to the first.

    ``tied_with_next`` and ``tied_with_first`` say where the intervals of these hold zero. Equal values share a rank.
    What has no value has no rank and stands last.
    """
    found: list[Line] = []
    for panel in sorted({line["panel"] for line in lines}):
        own = sorted((line for line in lines if line["panel"] == panel), key=lambda line: line["method"])
        own.sort(key=lambda line: -_goodness(line, by))
        goodness = [_goodness(line, by) for line in own]
        for place, line in enumerate(own):
            below = own[place + 1] if place + 1 < len(own) else None
            line["rank"] = None if line[by.name] is None else 1 + goodness.index(goodness[place])
            line |= _difference("lead", by, line, below, drawn)
            line |= _difference("gap", by, line, own[0] if place else None, drawn)
            line["tied_with_next"], line["tied_with_first"] = (_holds_zero(line, key) for key in ("lead", "gap"))
            line["on_frontier"] = not any(_dominates(other, line, by) for other in own)
        found += own
    return found


def _difference(key: str, by: Metric, line: Line, other: Line | None, drawn: Mapping[str, Drawn]) -> Line:
    """``key``, ``key_low``, ``key_high``: line - other in the metric that ranks, paired; None where there is none."""
    if other is None or line[by.name] is None or other[by.name] is None:
        return {key: None, f"{key}_low": None, f"{key}_high": None}
    mine, theirs = drawn[line["arm"]], drawn[other["arm"]]
    nothing = {key: number(line[by.name] - other[by.name]), f"{key}_low": None, f"{key}_high": None}
    if mine is theirs:  # 0 by construction
        return nothing
    found = interval(mine.draws - theirs.draws, mine.shares.minus(theirs.shares))
    return nothing | {f"{key}_low": number(found.low), f"{key}_high": number(found.high)}


def _holds_zero(line: Line, key: str) -> bool:
    """Whether there is a difference that its interval does not tell from nothing."""
    low, high = line[f"{key}_low"], line[f"{key}_high"]
    return line[key] is not None and (low is None or high is None or low <= 0.0 <= high)


def _goodness(line: Line, metric: Metric) -> float:
    """Larger is better, whichever way the metric points; what has no value is worst."""
    value = line.get(metric.name)
    if value is None:
        return -math.inf
    return float(value) if metric.better == "higher" else -float(value)


def _dominates(other: Line, line: Line, by: Metric) -> bool:
    """Whether another entry is at least as good in answers and in coverage, and better in one of them."""
    pairs = [(_goodness(line, metric), _goodness(other, metric)) for metric in (by, METRICS[COVERAGE])]
    return all(theirs >= mine for mine, theirs in pairs) and any(theirs > mine for mine, theirs in pairs)


def number(value: Any) -> float | None:
    """As JSON has it: six decimals, which no table prints and no platform rounds differently; None for no value."""
    return round(float(value), 6) if value is not None and np.isfinite(float(value)) else None
