"""Rows as a frame that takes a few bytes a value: chosen columns, names as categoricals, numbers as they are stored.

Rows are read in batches and every column becomes one array, so that nothing is in memory twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sightline.core.row import row_schema
from sightline.store.migrations import migrated_rows
from sightline.store.same_pixels import with_same_images
from sightline.store.shard_files import ShardPiece, bounds

if TYPE_CHECKING:
    from sightline.store.load import Run


# Columns of known length that are filled piece by piece, each in as few bytes a value as its content allows.

PENDING = 1 << 16
"""Values whose names wait to be numbered, or as many as there are known names: numbering looks at all of these."""


class ColumnArray(Protocol):
    """One column of a frame in the making."""

    def append(self, chunk: pa.Array) -> None: ...

    def finished(self) -> Any:
        """The column, when as many values are in it as were announced."""
        ...


def column_array(kind: pa.DataType, length: int) -> ColumnArray:
    """An empty column for values of an Arrow type: text, true or false, or numbers."""
    if pa.types.is_string(kind):
        return Names(length)
    return Flags(length) if pa.types.is_boolean(kind) else Numbers(kind, length)


class Numbers:
    """As they are stored; whole numbers become floats where one is missing, since only those can be NaN."""

    def __init__(self, kind: pa.DataType, length: int) -> None:
        self._values: NDArray[Any] = np.empty(length, dtype=kind.to_pandas_dtype())
        self._end = 0

    def append(self, chunk: pa.Array) -> None:
        values = chunk.to_numpy(zero_copy_only=False)
        if values.dtype.kind == "f" and self._values.dtype.kind == "i":
            self._values = self._values.astype(np.float64)
        self._values[self._end : self._end + len(values)] = values
        self._end += len(values)

    def finished(self) -> NDArray[Any]:
        return self._values


class Flags:
    """True or false, in pandas' own way where some are missing."""

    def __init__(self, length: int) -> None:
        self._values = np.empty(length, dtype=bool)
        self._missing: NDArray[np.bool_] | None = None
        self._end = 0

    def append(self, chunk: pa.Array) -> None:
        place = slice(self._end, self._end + len(chunk))
        self._values[place] = pc.fill_null(chunk, False).to_numpy(zero_copy_only=False)
        if chunk.null_count:
            if self._missing is None:
                self._missing = np.zeros(len(self._values), dtype=bool)
            self._missing[place] = pc.is_null(chunk).to_numpy(zero_copy_only=False)
        self._end = place.stop

    def finished(self) -> Any:
        return self._values if self._missing is None else pd.arrays.BooleanArray(self._values, self._missing)


def put_together(columns: dict[str, Any]) -> dict[str, Any]:
    """The same columns, where numbers that are all alike are one number, and equal columns one array.

    Most runs have some of both: nothing is merged, so that anchors cover what lineage covers; every probe has one
    region; every image has the same number of tokens. Such arrays cannot be written to.
    """
    found: dict[str, Any] = {}
    seen: dict[bytes, NDArray[Any]] = {}
    for name, values in columns.items():
        if isinstance(values, np.ndarray) and values.dtype.kind in "fi" and len(values):
            alike = values.view(f"i{values.itemsize}")  # by their bits: what is not a number equals itself
            values = np.broadcast_to(values[0], len(values)) if (alike == alike[0]).all() else _known(values, seen)
        found[name] = values
    return found


def _known(values: NDArray[Any], seen: dict[bytes, NDArray[Any]]) -> NDArray[Any]:
    """An array of the same content that was seen before, or this one."""
    digest = blake2b(values.data, digest_size=16, person=values.dtype.str.encode()).digest()
    values.flags.writeable = False
    return seen.setdefault(digest, values)


class Names:
    """Text as a categorical whose categories are in the order of the names."""

    def __init__(self, length: int) -> None:
        self._codes: NDArray[Any] = np.empty(length, dtype=np.int8)
        self._known = pa.array([], pa.string())
        self._pending: list[pa.DictionaryArray] = []
        self._waiting = 0
        self._end = 0

    def append(self, chunk: pa.Array) -> None:
        self._pending.append(chunk.dictionary_encode())
        self._waiting += len(chunk)
        if self._waiting >= max(PENDING, len(self._known)):
            self._number()

    def _number(self) -> None:
        """Numbers what waits. The known names come first, so that they keep their numbers."""
        nobody = pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), self._known)
        _, *chunks = pa.chunked_array([nobody, *self._pending]).unify_dictionaries().chunks
        if chunks:
            self._known = chunks[0].dictionary
            least = np.min_scalar_type(-max(1, len(self._known)))
            if least.itemsize > self._codes.dtype.itemsize:
                self._codes = self._codes.astype(least)
        for chunk in chunks:
            self._codes[self._end : self._end + len(chunk)] = pc.fill_null(chunk.indices, -1).to_numpy()
            self._end += len(chunk)
        self._pending, self._waiting = [], 0

    def finished(self) -> pd.Categorical:
        self._number()
        order = pc.array_sort_indices(self._known).to_numpy()
        place = np.empty(len(order) + 1, dtype=self._codes.dtype)
        place[order], place[-1] = np.arange(len(order)), -1
        names = pd.Index(self._known.take(pa.array(order)).to_pandas(), dtype="str")
        for start in range(0, len(self._codes), PENDING):
            part = slice(start, start + PENDING)
            self._codes[part] = place[self._codes[part]]
        return pd.Categorical.from_codes(self._codes, categories=names, validate=False)


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
