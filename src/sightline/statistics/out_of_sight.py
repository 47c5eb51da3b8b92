"""Evidence that no token comes from, before anything is pruned: image processors that crop leave the margins out."""

from __future__ import annotations

import pandas as pd

from sightline.statistics.metrics import ZERO_COVERAGE
from sightline.statistics.plain_rows import are_positives

NOT_ALL = 1.0 - 1e-9
"""Less than this is not fully visible; the rest is the last digits of region coordinates."""


def out_of_sight(frame: pd.DataFrame) -> str:
    """How many positives of a run lie outside what its model sees, in one line; "" where all are fully visible."""
    if "visible" not in frame:
        return ""
    visible = frame.loc[are_positives(frame)].groupby("probe_id")["visible"].max().dropna()
    hidden = int((visible <= ZERO_COVERAGE).sum())
    partly = int((visible < NOT_ALL).sum()) - hidden
    if not hidden + partly:
        return ""
    first, place, rest = (hidden, "wholly", f", {partly} more in part") if hidden else (partly, "in part", "")
    share = f"{first} of {len(visible)} positives ({first / len(visible):.0%})"
    return (
        f"{share} lie {place} outside what the model sees{rest if partly else ''}: "
        "PosECR counts that as lost, Relative PosECR is about the visible part alone"
    )
