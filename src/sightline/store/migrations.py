"""Run folders of earlier releases, read as if they had been written today.

Schema 1 (release 0.1): a row's ``arm`` was the plain arm whatever was done to it, rows did not say their ``role``
(which stays null), and images that an intervention changed were in files numbered from a million on.

Columns that were added since then are derived where rows can tell their value, and null elsewhere: ``regime`` from the
selector, where that is installed, ``box_source`` none where it reads no boxes, and what was spent, since a budget was
the same for all samples. Images without details keep none.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sightline.core.row import ROW_COLUMNS, SCHEMA_VERSION, image_schema, row_schema
from sightline.core.selection import NO_BOXES, Method, arm_regime
from sightline.errors import SightlineError
from sightline.places import Place
from sightline.store.soundness import BEFORE

READABLE = (1, SCHEMA_VERSION)
_VIEWS_OF_SCHEMA_1 = ("evidence_masked", "random_masked", "blank")
_VERSION_STEP = 1_000_000
_SCORED_IN_SCHEMA_1 = ("loss_yes", "loss_no", "margin", "greedy_yes", "greedy_no")
"""What is the yes/no scorer's own now, and stands together."""


def migrated_rows(table: pa.Table, arm: str, file: Place) -> pa.Table:
    """The rows of one file of the run's ``arm``, with the columns of today."""
    try:
        known = _with_spending(_with_anchor_precision(_with_regime(_of_schema_2(table, arm))))
        return _with_later_columns(_with_cut_off(known))
    except (KeyError, ValueError, TypeError, pa.ArrowException) as error:  # it looks at columns that are not there
        what = str(error).strip("'").split("\n")[0]
        raise SightlineError(f"{file} is damaged: {what}; delete it and run the same command again") from None


def _with_cut_off(table: pa.Table) -> pa.Table:
    """Answers in words were 32 tokens at most; one that has so many was cut off there."""
    if "cut_off" in table.column_names or "answer_tokens" not in table.column_names:
        return table
    place = table.column_names.index("answer_tokens") + 1
    return table.add_column(place, "cut_off", pc.greater_equal(table.column("answer_tokens"), BEFORE["longest_answer"]))


def _with_spending(table: pa.Table) -> pa.Table:
    """Before policies there was one pass, at the requested budget."""
    if "keep_spent" in table.column_names:
        return table
    nobody = pa.array(["none"] * len(table), pa.string())
    known = {"policy": nobody, "levels": table.column("budget"), "keep_spent": table.column("keep")}
    place = table.column_names.index("keep") + 1
    for name, column in reversed(known.items()):
        table = table.add_column(place, name, column)
    return table


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


def _with_regime(table: pa.Table) -> pa.Table:
    """The rows of one arm with their regime; null where nobody here knows what the selector reads."""
    if "regime" in table.column_names:
        return table
    first = table.select(["selector", "arguments", "boxes_ms"]).slice(0, 1).to_pylist()
    selector = _selector(first[0]["selector"], first[0]["arguments"]) if first else None
    regime = None
    if selector is not None:
        # Only an arm that reads boxes which were detected has been billed for finding them.
        regime = arm_regime(selector.role, selector.reads_boxes, detected=first[0]["boxes_ms"] is not None)
        if selector.reads_boxes is False:
            unread = pa.array([NO_BOXES] * len(table), pa.string())
            table = table.set_column(table.column_names.index("box_source"), "box_source", unread)
    column = pa.array([regime] * len(table), pa.string())
    return table.add_column(table.column_names.index("role") + 1, "regime", column)


def _selector(name: str, arguments: str | None) -> Method | None:
    """The method as it was run, if it is installed here and still takes those arguments."""
    try:
        from sightline.selectors import SELECTORS

        return SELECTORS.get(name)(**json.loads(arguments or "{}"))
    except (ImportError, SightlineError, TypeError, ValueError):
        return None


def migrated_images(table: pa.Table) -> pa.Table:
    """The image records of one file, with the columns of today."""
    for field in image_schema():
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
    return table


def _with_later_columns(table: pa.Table) -> pa.Table:
    """Every column that rows have today in its place, null where the file has none."""
    schema = row_schema()
    for before, column in pairwise(ROW_COLUMNS):
        if column.name not in table.column_names:
            unknown = pa.nulls(len(table), schema.field(column.name).type)
            table = table.add_column(table.column_names.index(before.name) + 1, schema.field(column.name), unknown)
    return table


def with_visible(table: pa.Table) -> pa.Table:
    """Fills ``visible`` where a run was written before it was a column.

    A row that kept every token of the same image says it: its coverage is what the tower sees of the evidence.
    """
    visible = table.column("visible")
    if not pc.any(pc.and_(pc.is_null(visible), pc.is_valid(table.column("ecr")))).as_py():
        return table
    frame = table.select(["probe_id", "image_key", "n_tokens", "k_tokens", "ecr", "visible"]).to_pandas()
    # Painted-over boxes change the key of an image, not what of it the tower sees.
    place = frame["probe_id"] + "\n" + frame["image_key"].str.partition("#")[0]
    whole = frame["n_tokens"] == frame["k_tokens"]
    told = frame["ecr"][whole].groupby(place[whole]).first()
    filled = frame["visible"].fillna(place.map(told)).to_numpy(dtype=np.float64)
    column = pa.array(filled, pa.float64(), mask=np.isnan(filled))
    return table.set_column(table.column_names.index("visible"), table.schema.field("visible"), column)


def migrate_folder(path: Place, manifest: dict[str, Any]) -> dict[str, Any]:
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
