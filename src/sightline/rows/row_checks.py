"""What rows and image records must hold to be read: what no writer leaves is refused by file and column."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sightline.core.row import image_schema, row_schema
from sightline.errors import SightlineError
from sightline.places.listing import Place

ALWAYS = (
    "arm", "plain_arm", "selector", "arguments", "budget", "keep", "n_tokens", "k_tokens", "positions", "intervention",
    "probe_id", "image_id", "image_key", "view", "label", "predicted", "correct", "n_regions", "kept_mask",
)  # fmt: skip
"""Columns of a row that are never null."""
UNTOLD = ("keep", "n_tokens", "k_tokens", "positions")
"""Except these, in rows of an engine that does not tell."""
ENGINE = "engine_digest"
"""What the conditions of such a row say."""
SHARES = ("keep", "visible", "ecr", "anchor_ecr", "center_recall", "patch_recall", "lpp", "geo_f1", "worst_region")
"""Columns between 0 and 1, where they are not null."""
OWN_NUMBERS = ("margin", "score", "loss_yes", "loss_no")
"""Columns of scorers that everything computes with."""
OF_IMAGES = ("image_key", "image", "image_id", "digest", "width", "height", "layout", "cells", "preview")
"""Columns of an image record that are never null."""
ROUNDING = 1e-6
WAY_OUT = "delete it and run the same command again"


def check_rows(table: pa.Table, arm: str, file: Place) -> pa.Table:
    """The rows of one file of an arm, with the columns of today, if every column holds what it is for."""
    _refuse_types(table, row_schema(), file)
    for name in OWN_NUMBERS:
        if name in table.column_names and not pa.types.is_floating(table.schema.field(name).type):
            raise _damaged(file, f"column '{name}' holds no numbers")
    by_engine = pc.all(pc.match_substring(table.column("conditions"), ENGINE)).as_py()
    _refuse_nulls(table, (name for name in ALWAYS if not (by_engine and name in UNTOLD)), file)
    if len(table) and pc.unique(table.column("arm")).to_pylist() != [arm]:
        raise _damaged(file, f"it holds rows of another arm than {arm}")
    asked = table.select(["probe_id", "view"]).to_pandas()
    if asked.duplicated().any():
        raise _damaged(file, f"it answers probe '{asked['probe_id'][asked.duplicated()].iloc[0]}' twice")
    counts, kept = table.column("n_tokens"), table.column("k_tokens")
    _refuse_where(pc.or_(pc.less(counts, 1), pc.less(kept, 0)), file, "'n_tokens' or 'k_tokens' is no number of tokens")
    bits = pc.divide(pc.add(counts, 7), 8)
    for name in ("kept_mask", "lineage_mask"):
        length = pc.binary_length(table.column(name))
        # An arm that is shown a smaller image has fewer cells than the full prefix has tokens.
        _refuse_where(pc.greater(length, bits), file, f"'{name}' has more bits than there are tokens")
    for name in SHARES:
        column = table.column(name)
        outside = pc.or_(pc.less(column, -ROUNDING), pc.greater(column, 1 + ROUNDING))
        _refuse_where(pc.or_(outside, pc.is_nan(column)), file, f"'{name}' is no share")
    _refuse_where(pc.less(table.column("n_regions"), 0), file, "'n_regions' is no number of regions")
    _refuse_json(table, "arguments", lambda value: isinstance(value, dict), file)
    _refuse_json(table, "decided_on", lambda value: isinstance(value, dict), file)
    return table


def check_images(table: pa.Table, file: Place) -> pa.Table:
    """The image records of one file, with the columns of today, likewise."""
    _refuse_types(table, image_schema(), file)
    _refuse_nulls(table, OF_IMAGES, file)
    sides = pc.or_(pc.less(table.column("width"), 1), pc.less(table.column("height"), 1))
    _refuse_where(sides, file, "an image has no pixels")
    cells = table.column("cells")
    length = pc.binary_length(cells)
    partial = pc.not_equal(pc.multiply(pc.divide(length, 16), 16), length)
    lacking = pc.and_(pc.equal(length, 0), pc.not_equal(table.column("layout"), "[]"))  # a model without cells has none
    _refuse_where(pc.or_(partial, lacking), file, "'cells' are not four numbers each")
    _refuse_json(table, "layout", _is_layout, file)
    boxes = pc.list_flatten(table.column("detail_boxes"))
    _refuse_where(pc.not_equal(pc.list_value_length(boxes), 4), file, "'detail_boxes' are not four numbers each")
    return table


def stack_tables(tables: Iterable[tuple[Place, pa.Table]], empty: pa.Schema) -> pa.Table:
    """Tables with the same columns as one, columns in the order of the first: all files of a run have the same ones."""
    found = list(tables)
    if not found:
        return empty.empty_table()
    first, table = found[0]
    for file, other in found[1:]:
        if set(other.column_names) != set(table.column_names):
            odd = sorted(set(other.column_names) ^ set(table.column_names))[0]
            raise _damaged(file, f"it has other columns than {first.name} of {first.parent.name} ({odd})")
        for name in table.column_names:
            if other.schema.field(name).type != table.schema.field(name).type:
                raise _damaged(file, f"column '{name}' is of another type than in {first.parent.name}/{first.name}")
    return pa.concat_tables([one.select(table.column_names) for _, one in found])


def _damaged(file: Place, what: str) -> SightlineError:
    return SightlineError(f"{file} is damaged: {what}; {WAY_OUT}")


def _refuse_types(table: pa.Table, schema: pa.Schema, file: Place) -> None:
    if len(set(table.column_names)) < len(table.column_names):
        raise _damaged(file, "it has a column twice")
    for field in schema:
        if field.name not in table.column_names:
            raise _damaged(file, f"it has no column '{field.name}'")
        if table.schema.field(field.name).type != field.type:
            raise _damaged(file, f"column '{field.name}' is {table.schema.field(field.name).type}, not {field.type}")


def _refuse_nulls(table: pa.Table, names: Iterable[str], file: Place) -> None:
    for name in names:
        if table.column(name).null_count:
            raise _damaged(file, f"column '{name}' has holes")


def _refuse_where(wrong: Any, file: Place, what: str) -> None:
    if pc.any(wrong).as_py():
        raise _damaged(file, what)


def _refuse_json(table: pa.Table, name: str, fits: Callable[[Any], bool], file: Place) -> None:
    for text in pc.unique(table.column(name)).to_pylist():
        try:
            good = text is None or fits(json.loads(text))
        except (ValueError, RecursionError):
            good = False
        if not good:
            raise _damaged(file, f"column '{name}' holds {text[:60]!r}")


def _is_layout(value: Any) -> bool:
    """Blocks of (rows, columns)."""
    return isinstance(value, list) and all(
        isinstance(block, list) and len(block) == 2 and all(type(side) is int and side > 0 for side in block)
        for block in value
    )
