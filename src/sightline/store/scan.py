"""The rows of a run in batches, in the run's order: memory does not grow with the run."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sightline.core.row import ROW_COLUMNS, row_schema
from sightline.errors import SightlineError
from sightline.store.gathering import gathered
from sightline.store.marks import stored_columns
from sightline.store.migrations import migrated_rows
from sightline.store.shard_files import ShardPiece
from sightline.store.soundness import WAY_OUT

if TYPE_CHECKING:
    from sightline.store.load import Run

ROWS = 8192
"""Rows of a batch."""
_COMMON = {column.name for column in ROW_COLUMNS}
_TOLD_BY_OTHERS = ("visible", "anchor_lpp", "anchor_geo_f1")
"""Columns that rows of an earlier release get from other rows, or from the images of the run."""


def scan_rows(
    run: Run,
    columns: Sequence[str] | None = None,
    arms: Sequence[str] | None = None,
    where: pc.Expression | None = None,
    rows: int = ROWS,
) -> Iterator[pa.RecordBatch]:
    """See ``Run.scan``."""
    chosen = run.arms if arms is None else [_known(arm, run.arms, f"{run.path} has no arm") for arm in arms]
    names = run.columns
    wanted = names if columns is None else [_known(name, names, "rows have no column") for name in columns]
    # An expression does not tell which columns it reads: those that it may name are read too.
    asked = "" if where is None else str(where)
    read = [name for name in names if name in wanted or name in asked]
    tables = _earlier(run, chosen, rows) if has_earlier_rows(run) else _today(run, chosen, read, rows)
    found = (table.select(wanted) if where is None else table.filter(where).select(wanted) for table in tables)
    for table in gathered(found, rows):
        yield from table.combine_chunks().to_batches()


def row_columns(run: Run) -> list[str]:
    """The columns of a run's rows, its scorer's own among them, in order; known from one file."""
    for arm in run.arms:
        for piece in run.pieces(arm)[:1]:
            parquet, _ = run.owner(arm).opened(piece.file, footer_alone=True)
            return list(migrated_rows(parquet.schema_arrow.empty_table(), arm, piece.file.path).column_names)
    return list(row_schema().names)


def has_earlier_rows(run: Run) -> bool:
    """Whether some rows were written before every row had all columns of today that only other rows can tell."""
    if run.manifest.get("marked"):
        return False
    files = (piece.file.path for arm in run.arms for piece in run.pieces(arm))
    return any(not set(_TOLD_BY_OTHERS).issubset(stored_columns(file)) for file in files)


def _today(run: Run, arms: Sequence[str], columns: list[str], rows: int) -> Iterator[pa.Table]:
    for arm in arms:
        owner = run.owner(arm)
        for piece in run.pieces(arm):
            if not run.manifest.get("marked"):  # without a checksum, content has to speak for itself
                yield from _sliced(run.rows_of(arm, piece).select(columns), rows)
                continue
            opened = owner.opened(piece.file)
            if _COMMON.issubset(opened[0].schema_arrow.names):
                tables = owner.batches_of(opened, piece, columns, rows)
            else:
                file = piece.file.path
                tables = (migrated_rows(table, arm, file) for table in owner.batches_of(opened, piece, rows=rows))
            yield from (_chosen(table, columns, piece) for table in tables)


def _chosen(table: pa.Table, columns: list[str], piece: ShardPiece) -> pa.Table:
    lost = next((name for name in columns if name not in table.column_names), None)
    if lost is not None:
        raise SightlineError(f"{piece.file.path} is damaged: it has no column '{lost}'; {WAY_OUT}")
    return table.select(columns)


def _earlier(run: Run, arms: Sequence[str], rows: int) -> Iterator[pa.Table]:
    """Such a run is read as a whole, since rows of one arm tell what others lack."""
    for arm in arms:
        yield from _sliced(run.rows.filter(pc.equal(run.rows.column("arm"), arm)), rows)


def _sliced(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def _known(name: str, names: Sequence[str], otherwise: str) -> str:
    if name in names:
        return name
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"
    raise SightlineError(f"{otherwise} '{name}'; {hint}")
