"""Evidence that no token comes from, before anything is pruned: image processors that crop leave the margins out."""

from __future__ import annotations

import pandas as pd

from sightline.statistics.metrics import ZERO_COVERAGE
from sightline.statistics.plain_rows import are_in_words, are_positives

NOT_ALL = 1.0 - 1e-9
"""Less than this is not fully visible; the rest is the last digits of region coordinates."""


def out_of_sight(frame: pd.DataFrame) -> str:
    """How many positives, or questions, of a run lie outside what its model sees, in one line; "" where none does."""
    if "visible" not in frame:
        return ""
    visible = frame.loc[are_positives(frame), ["probe_id", "visible"]].groupby("probe_id")["visible"].max().dropna()
    hidden = int((visible <= ZERO_COVERAGE).sum())
    partly = int((visible < NOT_ALL).sum()) - hidden
    if not hidden + partly:
        return ""
    first, place, rest = (hidden, "wholly", f", {partly} more in part") if hidden else (partly, "in part", "")
    in_words = bool(are_in_words(frame).any())
    whose, coverage = ("regions of", "ECR") if in_words else ("", "PosECR")
    share = f"{whose} {first} of {len(visible)} {'questions' if in_words else 'positives'} ({first / len(visible):.0%})"
    return (
        f"{share.strip()} lie {place} outside what the model sees{rest if partly else ''}: "
        f"{coverage} counts that as lost, Relative {coverage} is about the visible part alone"
    )
