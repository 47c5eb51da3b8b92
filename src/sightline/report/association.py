"""Does coverage go with behaviour? Margin change against coverage over all arms of one budget, the rest held fixed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sightline.report.geometry import probe_sizes
from sightline.report.source import Audited, Source
from sightline.report.table import Column, Table
from sightline.statistics.correlation import conditional_spearman

PREDICTORS = {"ecr": "ECR", "anchor_ecr": "AnchorECR", "lpp": "LPP", "geo_f1": "Geo-F1"}


def association_table(source: Source, draws: int, seed: int) -> Table | None:
    """Conditional Spearman of (arm's margin - Full's margin) and coverage on positives, for each budget with two arms.

    Two specifications: measured controls (ranked log evidence area, log median cell area, Full margin) with arm
    effects, and image with arm effects. Images are resampled, residuals are kept. None when no budget has two arms.
    """
    records: list[dict[str, Any]] = []
    for audited in source.runs:
        if audited.full is not None:
            records += _run_records(audited, draws, seed)
    if not records:
        return None
    columns = [
        Column("budget", "Budget"),
        Column("arms", "Arms", "count"),
        Column("specification", "Held fixed"),
        Column("predictor", "Coverage"),
        Column("images", "Images", "count"),
        Column("r", "Spearman r", "signed", interval=True),
    ]
    caption = (
        "Positives of all arms at one budget together: rank correlation of coverage with the margin change from Full, "
        "image-cluster intervals. Association is not use: interventions test that."
    )
    return Table(
        "association", "Coverage and margin change", caption, columns, pd.DataFrame(records), filter="predictor"
    )


def _run_records(audited: Audited, draws: int, seed: int) -> list[dict[str, Any]]:
    sizes = probe_sizes(audited)
    frame = audited.frame
    rows = frame[
        (frame["label"] == "yes") & (frame["arm"] != audited.full) & frame["probe_id"].isin(sizes.index)
    ].dropna(subset=[*PREDICTORS, "reference_margin"])
    prefix = f"{audited.name} · " if audited.name else ""
    records = []
    for budget, group in rows.groupby("budget", sort=False):
        if group["arm"].nunique() < 2 or group["image_id"].nunique() < 3:
            continue
        change = group["margin"].astype(float) - group["reference_margin"].astype(float)
        size = sizes.loc[group["probe_id"]]
        controls: list[ArrayLike] = [
            np.log(np.maximum(size["evidence_area"], 1e-12)),
            np.log(np.maximum(size["cell_area"], 1e-12)),
            group["reference_margin"].astype(float),
        ]
        for title, held in (("sizes, Full margin, arm", controls), ("image, arm", None)):
            for predictor, label in PREDICTORS.items():
                found = conditional_spearman(
                    group[predictor].astype(float),
                    change,
                    group["image_id"],
                    group["arm"],
                    held,
                    draws=draws,
                    seed=seed,
                )
                records.append(
                    {
                        "budget": f"{prefix}{budget}",
                        "arms": group["arm"].nunique(),
                        "specification": title,
                        "predictor": label,
                        "images": group["image_id"].nunique(),
                        "r": found.value,
                        "r_low": found.low,
                        "r_high": found.high,
                    }
                )
    return records
