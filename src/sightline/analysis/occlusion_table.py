"""The evidence grayed in the image, against as large a box elsewhere."""

from __future__ import annotations

import pandas as pd

from sightline.analysis.comparison import Record, by_model, compare_support, table_of, views_of
from sightline.core.probe import ORIGINAL
from sightline.statistics.bootstrap import DRAWS


def occlusion_table(frame: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """Target support on the original, with the evidence grayed, and with as large a box grayed elsewhere."""
    names = {ORIGINAL: "original", "evidence_masked": "evidence grayed", "random_masked": "other box grayed"}
    records: list[Record] = []
    for model, rows in by_model(frame):
        for arm, own in rows.groupby("plain_arm", sort=False):
            views = views_of(own, str(arm))
            if not set(names) <= set(views):
                continue
            for left, right in (
                (ORIGINAL, "evidence_masked"),
                ("random_masked", "evidence_masked"),
                (ORIGINAL, "random_masked"),
            ):
                sides = {"left": names[left], "right": names[right]}
                records.append(
                    {"model": model, "arm": arm, **sides, **compare_support(views[left], views[right], draws)}
                )
    return table_of(records, "no arm was run on occluded images; run again with --interventions occlusion")
