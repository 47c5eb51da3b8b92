"""What a run's probes ask, beside the rows that answer it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from sightline.core.probe import ORIGINAL

TEXTS = {"question": "question", "target": "target_text", "source": "source_text"}
"""Column of a frame -> key of a probe's record."""


def with_texts(frame: pd.DataFrame, probes: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The rows with ``question``, ``target`` (the queried string) and ``source`` (what stands in the regions).

    A control set asks the same probe about several views of its image, perhaps in other words: a row gets those of its
    own view. A view that an intervention made is asked about as the original is.
    """
    by_view: dict[tuple[str, str], Mapping[str, Any]] = {}
    by_id: dict[str, Mapping[str, Any]] = {}
    for probe in probes:
        name, view = str(probe["id"]), str(probe.get("view", ORIGINAL))
        by_view.setdefault((name, view), probe)
        if view == ORIGINAL or name not in by_id:
            by_id[name] = probe
    pairs = zip(frame["probe_id"], frame["view"], strict=True)
    asked = [by_view.get((name, view)) or by_id.get(name, {}) for name, view in pairs]
    columns = {column: [probe.get(key) for probe in asked] for column, key in TEXTS.items()}
    return pd.concat([frame, pd.DataFrame(columns, index=frame.index, dtype=object)], axis=1)
