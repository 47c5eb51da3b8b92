"""Rows as a frame that takes a few bytes a value: chosen columns, names as categoricals, numbers as they are stored.

Rows are read in batches and every column becomes one array, so that nothing is in memory twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sightline.core.row import row_schema
from sightline.store.column_arrays import ColumnArray, column_array, put_together
from sightline.store.migrations import migrated_rows
from sightline.store.same_pixels import with_same_images
from sightline.store.shard_files import ShardPiece
from sightline.store.shard_reading import bounds

if TYPE_CHECKING:
    from sightline.store.load import Run

MERGED = "merged"
"""A column beside those of the rows: whether tokens were merged, which the lineage mask says by being there."""
_LINEAGE = "lineage_mask"


def compact_frame(run: Run, wanted: Callable[[str], bool], same: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The rows of a run in its order, with those of their columns that are wanted by name, and ``merged``.

    Images of the same pixels have one ``image_id``: the run's own, or those of several runs together in ``same``. Text
    becomes categorical, with its categories in the order of the names; what is missing is NaN, or NA among true
    and false. Lists and masks are left out.
    """
    kinds = {field.name: field.type for field in _schema(run) if wanted(field.name) and _is_plain(field.type)}
    length = count_rows(run)
    columns: dict[str, ColumnArray] = {name: column_array(kind, length) for name, kind in kinds.items()}
    columns[MERGED] = column_array(pa.bool_(), length)
    for batch in run.scan([*kinds, _LINEAGE]):
        for name in kinds:
            columns[name].append(batch.column(name))
        columns[MERGED].append(pc.is_valid(batch.column(_LINEAGE)))
    made = put_together({name: columns.pop(name).finished() for name in list(columns)})
    if "image_id" in made:
        made["image_id"] = with_same_images(made["image_id"], run.same_images if same is None else same)
    return pd.DataFrame(made, copy=False)


def count_rows(run: Run) -> int:
    """How many rows a run has so far, from what its files say of themselves."""
    return sum(rows for _, _, rows in _pieces(run))


def rows_at(run: Run, places: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """Some columns of some rows, by their places in the run's order; only the files that hold them are read."""
    asked = np.asarray(places, dtype=np.int64)
    order = np.argsort(asked, kind="stable")
    ascending, start = asked[order], 0
    found = [_schema(run).empty_table().select(list(columns))]
    for arm, piece, rows in _pieces(run):
        low, high = np.searchsorted(ascending, [start, start + rows])
        if low < high:
            table = _read(run, arm, piece, list(columns))
            found.append(table.take(pa.array(ascending[low:high] - start)))
        start += rows
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return pa.concat_tables(found).take(pa.array(back))


def _pieces(run: Run) -> Iterator[tuple[str, ShardPiece, int]]:
    """Every piece of a run's rows, in its order, with its arm and its number of rows."""
    for arm in run.arms:
        owner = run.owner(arm)
        for piece in run.pieces(arm):
            parquet, mark = owner.opened(piece.file, footer_alone=True)
            start, stop = bounds(piece, mark, parquet.metadata.num_rows)
            yield arm, piece, stop - start


def _schema(run: Run) -> pa.Schema:
    """The columns of a run's rows with their types, known from one file."""
    for arm in run.arms:
        for piece in run.pieces(arm)[:1]:
            parquet, _ = run.owner(arm).opened(piece.file, footer_alone=True)
            return migrated_rows(parquet.schema_arrow.remove_metadata().empty_table(), arm, piece.file.path).schema
    return row_schema()


def _read(run: Run, arm: str, piece: ShardPiece, columns: list[str]) -> pa.Table:
    """Some columns of a piece, in this order, as they would be written today."""
    owner = run.owner(arm)
    parquet, _ = owner.opened(piece.file, footer_alone=True)
    if set(columns) <= set(parquet.schema_arrow.names):
        return owner.read(piece, columns).select(columns)
    return migrated_rows(owner.read(piece), arm, piece.file.path).select(columns)


def _is_plain(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
