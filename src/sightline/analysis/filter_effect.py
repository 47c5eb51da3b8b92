"""What becomes of metrics when rows are limited to the probes that people found valid: the largest change of each."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from sightline.errors import SightlineError
from sightline.statistics.metrics import METRICS, point
from sightline.statistics.summaries import arm_rows


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
