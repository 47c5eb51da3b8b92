"""Is coverage a fair measure here? Precision beside recall, and coverage by the size of evidence and cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sightline.errors import SightlineError
from sightline.report.source import Audited, Source
from sightline.report.table import Column, Table
from sightline.store.load import unpack_cells

STRATA = {
    "evidence_area": "evidence area",
    "cell_area": "median cell area",
    "ratio": "evidence area / cell area",
}
_TERTILES = ("smallest third", "middle third", "largest third")


def strata_table(source: Source) -> Table:
    """Coverage and accuracy on positives by tertile of evidence area, cell area and their ratio.

    Boundaries are the 1/3 and 2/3 quantiles over the probes; a value on a boundary belongs to the lower side.
    """
    records: list[dict[str, Any]] = []
    for audited in source.runs:
        sizes = probe_sizes(audited)
        positive = audited.frame[(audited.frame["label"] == "yes") & audited.frame["probe_id"].isin(sizes.index)]
        for key, title in STRATA.items():
            values = sizes.loc[sizes.index.isin(positive["probe_id"]), key]
            if values.empty or values.max() - values.min() <= 1e-12:
                continue  # Cells of one size cannot be stratified: a fixed raster has a single cell area.
            stratum = np.searchsorted(np.quantile(values, [1 / 3, 2 / 3]), values, side="left")
            where = pd.Series(stratum, index=values.index)
            for (arm, third), rows in positive.groupby(["arm", positive["probe_id"].map(where)], sort=False):
                place = int(str(third))
                records.append(
                    {
                        "arm": arm,
                        "by": title,
                        "stratum": _TERTILES[place],
                        "third": place,
                        "probes": len(rows),
                        "accuracy": float(rows["correct"].mean()),
                        "ecr": float(rows["ecr"].mean()),
                        "lpp": float(rows["lpp"].mean()),
                    }
                )
    if not records:
        raise SightlineError("no positive probe has a region: coverage cannot be split by evidence size")
    frame = pd.DataFrame(records)
    order = {arm: i for i, arm in enumerate(source.frame["arm"].unique())}
    frame = frame.sort_values(["arm", "by", "third"], key=lambda c: c.map(order) if c.name == "arm" else c)
    columns = [
        Column("arm", "Arm"),
        Column("by", "Split by"),
        Column("stratum", "Third"),
        Column("probes", "Positives", "count"),
        Column("accuracy", "Accuracy", "score"),
        Column("ecr", "PosECR", "score"),
        Column("lpp", "LPP", "score"),
    ]
    caption = (
        "Positives in thirds of equal count. Coverage that rises with cell size alone is inflation by coarse cells; "
        "precision (LPP) falls with it."
    )
    return Table("scale_strata", "Coverage by scale", caption, columns, frame.reset_index(drop=True), filter="by")


def probe_sizes(audited: Audited) -> pd.DataFrame:
    """Evidence area (union of regions), median cell area and their ratio, for each probe that has a region."""
    median = {}
    table = audited.run.images.select(["image_key", "cells"])
    for key, packed in zip(table.column("image_key").to_pylist(), table.column("cells").to_pylist(), strict=True):
        cells = unpack_cells(packed).astype(float)
        median[key] = float(np.median((cells[:, 2] - cells[:, 0]) * (cells[:, 3] - cells[:, 1])))
    first = audited.frame.drop_duplicates("probe_id").set_index("probe_id")
    records = {}
    for probe_id, image_key in first["image_key"].items():
        regions = audited.probes.get(str(probe_id), {}).get("regions") or []
        if regions and image_key in median:
            evidence, cell = union_area(regions), median[image_key]
            records[probe_id] = {"evidence_area": evidence, "cell_area": cell, "ratio": evidence / max(cell, 1e-12)}
    return pd.DataFrame.from_dict(records, orient="index", columns=list(STRATA))


def union_area(boxes: list[Any]) -> float:
    """Exact area of a union of axis-aligned boxes, by the grid that their edges draw."""
    array = np.asarray(boxes, dtype=float).reshape(-1, 4)
    if len(array) == 1:
        return float((array[0, 2] - array[0, 0]) * (array[0, 3] - array[0, 1]))
    x, y = np.unique(array[:, [0, 2]]), np.unique(array[:, [1, 3]])
    inside_x = (array[:, 0, None] <= x[:-1]) & (x[1:] <= array[:, 2, None])
    inside_y = (array[:, 1, None] <= y[:-1]) & (y[1:] <= array[:, 3, None])
    covered = np.einsum("mi,mj->ij", inside_x.astype(int), inside_y.astype(int)) > 0
    return float((np.diff(x)[:, None] * np.diff(y)[None, :])[covered].sum())
