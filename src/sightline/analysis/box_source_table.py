"""Every arm under every source of selector-visible boxes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from sightline.analysis.comparison import Record, by_model, rates
from sightline.core.regime import NO_BOXES
from sightline.errors import SightlineError
from sightline.statistics.plain_rows import plain_rows


def box_source_table(frame: pd.DataFrame, quality: Mapping[str, Mapping[str, Any]] | None = None) -> pd.DataFrame:
    """Every arm under every box source; coverage is that of the annotated regions throughout.

    ``quality`` maps a box source to the ``boxes`` entry of its run's manifest: missing rate, best IoU, latency.
    """
    plain = plain_rows(frame)
    if set(plain["box_source"].dropna().unique()) <= {"annotation", NO_BOXES}:
        raise SightlineError("all rows saw annotated boxes; run again with --box-source and give both runs")
    records: list[Record] = []
    for model, rows in by_model(plain):
        for (arm, source), own in rows.groupby(["plain_arm", "box_source"], sort=False):
            record = {"model": model, "arm": arm, "box_source": source, **rates(own)}
            record["boxes_ms"] = float(own["boxes_ms"].astype(float).mean()) if "boxes_ms" in own else math.nan
            known = (quality or {}).get(str(source), {})
            record |= {name: known.get(name, math.nan) for name in ("missing_rate", "best_iou", "boxes_per_probe")}
            records.append(record)
    return pd.DataFrame(records)
