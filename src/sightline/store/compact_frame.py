"""Rows as a frame that takes a few bytes a value: chosen columns, names as categoricals, numbers as they are stored.

Files are read one after the other and every column becomes one array, so that nothing is in memory twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sightline.core.row import ROW_COLUMNS
from sightline.errors import SightlineError
from sightline.store.column_arrays import ColumnArray, column_array
from sightline.store.folder import RunFolder, read_table
from sightline.store.migrations import migrated_rows

if TYPE_CHECKING:
    from sightline.store.load import Run

MERGED = "merged"
"""A column beside those of the rows: whether tokens were merged, which the lineage mask says by being there."""
_LINEAGE = "lineage_mask"
_COMMON = {column.name for column in ROW_COLUMNS}
_TOLD_BY_OTHERS = (("visible", "ecr"), ("anchor_lpp", "lpp"))
"""Columns that rows of an earlier release get from elsewhere, and what those rows do have."""


class _EarlierRunError(Exception):
    """Some rows were written before every row had all columns of today."""


def compact_frame(run: Run, wanted: Callable[[str], bool]) -> pd.DataFrame:
    """The rows of a run in its order, with those of their columns that are wanted by name, and ``merged``.

    Text becomes categorical, with its categories in the order of the names; what is missing is NaN, or NA among true
    and false. Lists and masks are left out.
    """
    files = [(arm, file, _metadata(file).num_rows) for arm, file in _files(run)]
    try:
        return _frame(_tables(files, wanted), sum(rows for _, _, rows in files))
    except _EarlierRunError:  # such a run is read as a whole: rows tell what others lack
        return _frame([_chosen(run.rows, _names(run.rows.schema, wanted))], run.rows.num_rows)


def _frame(tables: Iterable[pa.Table], length: int) -> pd.DataFrame:
    columns: dict[str, ColumnArray] = {}
    for table in tables:
        for field, column in zip(table.schema, table.columns, strict=True):
            if field.name not in columns:
                columns[field.name] = column_array(field.type, length)
            for chunk in column.chunks:
                columns[field.name].append(chunk)
    return pd.DataFrame({name: columns.pop(name).finished() for name in list(columns)}, copy=False)


def count_rows(run: Run) -> int:
    """How many rows a run has so far, from what its files say of themselves."""
    return sum(_metadata(file).num_rows for _, file in _files(run))


def rows_at(run: Run, places: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """Some columns of some rows, by their places in the run's order; only the files that hold them are read."""
    asked = np.asarray(places, dtype=np.int64)
    order = np.argsort(asked, kind="stable")
    ascending, start = asked[order], 0
    found: list[pa.Table] = []
    for arm, file in _files(run):
        metadata = _metadata(file)
        low, high = np.searchsorted(ascending, [start, start + metadata.num_rows])
        if low < high or not found:
            table = _read(file, metadata, arm, list(columns))
            found.append(table.take(pa.array(ascending[low:high] - start)))
        start += metadata.num_rows
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return pa.concat_tables(found).take(pa.array(back))


def _files(run: Run) -> Iterator[tuple[str, Path]]:
    """Every file of rows with its arm, in the run's order."""
    folder = RunFolder(run.path)
    for arm in run.arms:
        for file in sorted(folder.rows_file(arm, 0).parent.glob("*.parquet")):
            yield arm, file


def _metadata(file: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise SightlineError(f"{file} cannot be read ({error}); delete it and run the same command again") from None


def _read(file: Path, metadata: pq.FileMetaData, arm: str, columns: list[str]) -> pa.Table:
    """Some columns of a file, in this order, as they would be written today."""
    if set(columns) <= set(metadata.schema.to_arrow_schema().names):
        return read_table(file, columns).select(columns)
    return migrated_rows(read_table(file), arm).select(columns)


def _tables(files: Iterable[tuple[str, Path, int]], wanted: Callable[[str], bool]) -> Iterator[pa.Table]:
    names: list[str] | None = None
    for _, file, _ in files:
        with pq.ParquetFile(file) as opened:
            if not set(opened.schema_arrow.names) >= _COMMON:
                raise _EarlierRunError
            names = names or _names(opened.schema_arrow, wanted)
            table = _chosen(opened.read(columns=[*names, _LINEAGE], use_threads=False), names)
        if _lacks(table):
            raise _EarlierRunError
        yield table


def _names(schema: pa.Schema, wanted: Callable[[str], bool]) -> list[str]:
    kinds = {field.name: field.type for field in schema}
    return [name for name, kind in kinds.items() if wanted(name) and not (pa.types.is_nested(kind) or _is_mask(kind))]


def _is_mask(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _chosen(table: pa.Table, names: list[str]) -> pa.Table:
    return table.select(names).append_column(MERGED, pc.is_valid(table.column(_LINEAGE)))


def _lacks(table: pa.Table) -> bool:
    """Whether a value is missing that other rows, or the images of the run, may tell."""
    there = set(table.column_names)
    return any(
        pc.any(pc.and_(pc.is_null(table.column(name)), pc.is_valid(table.column(beside)))).as_py()
        for name, beside in _TOLD_BY_OTHERS
        if {name, beside} <= there and table.column(name).null_count
    )
