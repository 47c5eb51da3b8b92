"""Run folders of earlier releases, read as if they had been written today.

Columns that were added since then are derived where a row can tell their value, and null elsewhere.
Schema 1 (release 0.1): a row's ``arm`` was the plain arm whatever was done to it, rows did not say their ``role``
(which stays null), and images that an intervention
changed were in files numbered from a million on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sightline.core.row import SCHEMA_VERSION

READABLE = (1, SCHEMA_VERSION)
_VIEWS_OF_SCHEMA_1 = ("evidence_masked", "random_masked", "blank")
_VERSION_STEP = 1_000_000
_SCORED_IN_SCHEMA_1 = ("loss_yes", "loss_no", "margin", "greedy_yes", "greedy_no")
"""What is the yes/no scorer's own now, and stands together."""


def migrated_rows(table: pa.Table, arm: str) -> pa.Table:
    """The rows of one file of the run's ``arm``, with the columns of today."""
    return _with_anchor_precision(_of_schema_2(table, arm))


def _with_anchor_precision(table: pa.Table) -> pa.Table:
    """Where nothing was merged, anchors are the lineage and so is their precision."""
    merged = pc.is_valid(table.column("lineage_mask"))
    place = table.column_names.index("geo_f1") + 1
    for own, of_lineage in (("anchor_geo_f1", "geo_f1"), ("anchor_lpp", "lpp")):
        if own not in table.column_names:
            known = pc.if_else(merged, pa.scalar(None, pa.float64()), table.column(of_lineage))
            table = table.add_column(place, own, known)
    return table


def _of_schema_2(table: pa.Table, arm: str) -> pa.Table:
    if "plain_arm" in table.column_names:
        return table
    plain = table.column("arm")
    table = table.set_column(0, "arm", pa.array([arm] * len(table), pa.string()))
    table = table.add_column(1, "plain_arm", plain)
    unknown = pa.nulls(len(table), pa.string())
    table = table.add_column(table.column_names.index("selector") + 1, "role", unknown)
    order = [name for name in table.column_names if name not in _SCORED_IN_SCHEMA_1]
    behind = order.index("correct") + 1
    return table.select([*order[:behind], *_SCORED_IN_SCHEMA_1, *order[behind:]])


def migrate_folder(path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Gives the files of an older run folder their names of today, one by one, before it is written to.

    A kill in between is harmless: what has its new name is left alone the next time.
    """
    if manifest["schema"] == 1:
        for file in sorted((path / "images").glob("*.parquet")):
            if not file.stem.isdigit() or int(file.stem) < _VERSION_STEP:
                continue
            version, shard = divmod(int(file.stem), _VERSION_STEP)
            file.rename(file.with_name(f"{shard:05d}.{_VIEWS_OF_SCHEMA_1[version - 1]}.parquet"))
    return {**manifest, "schema": SCHEMA_VERSION}
