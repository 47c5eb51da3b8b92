"""What a run's probes ask, beside the rows that answer it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from sightline.core.probe import ORIGINAL

TEXTS = ("question", "target_text", "source_text")
"""Keys of a probe's record, and columns of a frame."""
OF_OPEN_QUESTIONS = ("answers", "roles")
"""The same of probes that are answered in words: every accepted answer, and what each region is to the question."""
ASKED = ["probe_id", "view"]
"""Columns that tell which record a row answers."""


def with_texts(frame: pd.DataFrame, probes: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The rows with the question, the queried string and what stands in the regions, behind all other columns.

    Open questions come with their accepted answers and the roles of their regions too, as tuples.

    A control set asks the same probe about several views of its image, perhaps in other words: a row gets those of its
    own view. A view that an intervention made is asked about as the original is.
    """
    by_view: dict[tuple[str, str], Mapping[str, Any]] = {}
    by_id: dict[str, Mapping[str, Any]] = {}
    is_open = False
    for probe in probes:
        is_open = is_open or bool(probe.get("answers"))
        name, view = str(probe["id"]), str(probe.get("view", ORIGINAL))
        by_view.setdefault((name, view), probe)
        if view == ORIGINAL or name not in by_id:
            by_id[name] = probe
    told = frame[ASKED].drop_duplicates()  # one lookup per probe and view, however many arms answered it
    asked = [by_view.get((name, view)) or by_id.get(name, {}) for name, view in told.itertuples(index=False)]
    for text in TEXTS:
        if text not in frame:
            told[text] = [probe.get(text) for probe in asked]
    for key in OF_OPEN_QUESTIONS if is_open else ():
        if key not in frame:
            told[key] = [tuple(probe.get(key) or ()) for probe in asked]
    return frame.merge(told, how="left", on=ASKED)
