"""Which rows are plain: nothing was done to the mask, the positions or the image."""

from __future__ import annotations

import pandas as pd

from sightline.core.probe import ORIGINAL

UNCHANGED = "none"
"""What the column ``intervention`` says of a plain arm about the original image."""


def is_plain(frame: pd.DataFrame) -> pd.Series[bool]:
    """Per row whether it is plain. Only such rows are an arm's own result."""
    untouched = (frame["intervention"] == UNCHANGED) | frame["intervention"].isna()
    return untouched & (frame["view"] == ORIGINAL)


def plain_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The plain rows."""
    plain = is_plain(frame)
    found: pd.DataFrame = frame if plain.all() else frame[plain]
    return found


def are_in_words(frame: pd.DataFrame) -> pd.Series[bool]:
    """Per row whether its answer is a text that was scored against accepted ones, which may be "no" as well."""
    return frame["score"].notna() if "score" in frame else pd.Series(False, index=frame.index)


def are_positives(frame: pd.DataFrame) -> pd.Series[bool]:
    """Per row whether the image holds what is asked for. A question that is not answered yes or no asks for something
    that is there."""
    return (frame["label"] != "no") | are_in_words(frame)
