"""The rows of one arm as arrays, which every metric reads; and columns of large frames, in few bytes a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from sightline.core.probe import ORIGINAL
from sightline.errors import SightlineError

# Which rows are plain: nothing was done to the mask, the positions or the image.

UNCHANGED = "none"
"""What the column ``intervention`` says of a plain arm about the original image."""


def is_plain(frame: pd.DataFrame) -> pd.Series[bool]:
    """Per row whether it is plain. Only such rows are an arm's own result."""
    untouched = (frame["intervention"] == UNCHANGED) | frame["intervention"].isna()
    return untouched & (frame["view"] == ORIGINAL)


def plain_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The plain rows."""
    plain = is_plain(frame)
    found: pd.DataFrame = frame if plain.all() else frame[plain]
    return found


def are_in_words(frame: pd.DataFrame) -> pd.Series[bool]:
    """Per row whether its answer is a text that was scored against accepted ones, which may be "no" as well."""
    return frame["score"].notna() if "score" in frame else pd.Series(False, index=frame.index)


def are_positives(frame: pd.DataFrame) -> pd.Series[bool]:
    """Per row whether the image holds what is asked for. A question that is not answered yes or no asks for something
    that is there."""
    return (frame["label"] != "no") | are_in_words(frame)


# The array types that statistics functions take and return, and the one way in for true/false columns.

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
AnyArray = NDArray[Any]


def flags(values: ArrayLike, name: str) -> BoolArray:
    """True/false or 0/1 as a boolean array. Refuses words: numpy would take the string "no" for true."""
    found = np.asarray(values)
    if found.dtype != bool and not (found.dtype.kind in "iuf" and np.isin(found, (0, 1)).all()):
        raise SightlineError(f"{name} must be true or false on every row (yes = true)")
    return found.astype(bool)


@dataclass(frozen=True)
class ArmRows:
    """One arm over n probes of m images, in any order. Build it with ``ArmRows.of``."""

    labels: BoolArray
    """(n,) True where the right answer is yes."""
    predicted: BoolArray | None
    """(n,) True where the arm answered yes; None when neither margins nor answers are known."""
    margins: FloatArray | None
    """(n,) loss_no - loss_yes."""
    has_regions: BoolArray
    """(n,) True where the probe has at least one annotated region; geometry is read nowhere else."""
    image_index: IntArray
    """(n,) which of the m images a probe belongs to; images are numbered in the order of their sorted ids."""
    image_ids: AnyArray
    """(m,) sorted ids."""
    columns: Mapping[str, FloatArray] = field(default_factory=dict)
    """Per-probe values by row-schema name (``ecr``, ``anchor_ecr``, ``lpp``, ...), each (n,)."""
    yes_or_no: bool = True
    """False where answers are something else: ``predicted`` then says whether the answer is right."""

    @property
    def n_images(self) -> int:
        return len(self.image_ids)

    @classmethod
    def of(
        cls,
        labels: ArrayLike,
        margins: ArrayLike | None = None,
        images: ArrayLike | None = None,
        *,
        threshold: float = 0.0,
        predicted: ArrayLike | None = None,
        has_regions: ArrayLike | None = None,
        yes_or_no: bool = True,
        **columns: ArrayLike,
    ) -> ArmRows:
        """Checks lengths and fills in what follows from the rest.

        Without ``predicted`` an answer is yes iff margin >= threshold; without ``images`` every probe is its own image;
        without ``has_regions`` a probe has regions where ``ecr`` is finite.
        """
        label = flags(labels, "labels")
        count = len(label)
        if count == 0:
            raise SightlineError("there are no rows to compute statistics from")
        margin = None if margins is None else np.asarray(margins, dtype=np.float64)
        values = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
        answered: BoolArray | None = None
        if predicted is not None:
            answered = flags(predicted, "predicted")
        elif margin is not None:
            answered = margin >= threshold
        if has_regions is not None:
            regions = flags(has_regions, "has_regions")
        else:
            regions = np.isfinite(values["ecr"]) if "ecr" in values else np.zeros(count, dtype=bool)
        ids = np.arange(count) if images is None else np.asarray(images)
        ids = ids.astype(str) if ids.dtype == object else ids
        lengths = {"margins": margin, "predicted": answered, **values, "has_regions": regions, "images": ids}
        for name, column in lengths.items():
            if column is not None and column.shape != (count,):
                raise SightlineError(f"{name} has shape {column.shape}, expected one value for each of {count} labels")
        image_ids, image_index = np.unique(ids, return_inverse=True)
        return cls(label, answered, margin, regions, image_index.astype(np.int64), image_ids, values, yes_or_no)


# Columns of names as numbers: what is sorted, counted and joined by them at the price of integers.
#
# A column of names may come as text or as a pandas categorical. Large runs come as categoricals whose categories are
# in the order of the names (``Names``), so that codes sort as names do.


def as_names(column: pd.Series[Any]) -> pd.Series[Any]:
    """The column as text, however it came."""
    return column.astype(column.cat.categories.dtype) if isinstance(column.dtype, pd.CategoricalDtype) else column


def in_name_order(column: pd.Series[Any]) -> bool:
    """Whether the column is categorical and its codes sort as its names do, with no name missing."""
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return False
    return column.cat.categories.is_monotonic_increasing and bool((column.cat.codes >= 0).all())


def numbered(column: pd.Series[Any]) -> tuple[IntArray, AnyArray]:
    """(n,) which of the (m,) sorted names each row has, and the names; names that no row has are not counted."""
    if not in_name_order(column):
        names, index = np.unique(column.astype(str).to_numpy().astype(str), return_inverse=True)
        return index.astype(np.int64), names
    codes = column.cat.codes.to_numpy()
    present = np.bincount(codes, minlength=len(column.cat.categories)) > 0
    place = np.cumsum(present) - 1
    return place[codes].astype(np.int64), column.cat.categories[present].to_numpy().astype(str)


def looked_up(keys: pd.Series[Any], table: pd.Series[Any]) -> pd.Series[Any]:
    """What ``table`` says of each key: ``keys.map(table)``, at the price of integers where keys are categorical.

    The table has each key once, in its index; a key that it lacks gives a missing value.
    """
    if not isinstance(keys.dtype, pd.CategoricalDtype):
        return keys.map(table)
    names = table.index
    if isinstance(names, pd.CategoricalIndex):
        names = names.astype(names.categories.dtype)
    place = names.get_indexer(keys.cat.categories)  # one search per name, however many rows have it
    codes = keys.cat.codes.to_numpy()
    where = np.where(codes >= 0, place[codes], -1) if len(place) else np.full(len(codes), -1)
    found = table.array.take(where, allow_fill=True) if (where < 0).any() else table.array.take(where)
    return pd.Series(found, index=keys.index, name=keys.name)


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


def shared_arrays(columns: dict[str, Any]) -> dict[str, Any]:
    """The same columns, where numbers that are all alike are one number, and equal columns one array.

    Most runs have some of both: nothing is merged, so that anchors cover what lineage covers; every probe has one
    region; every image has the same number of tokens. Such arrays cannot be written to.
    """
    found: dict[str, Any] = {}
    seen: dict[bytes, NDArray[Any]] = {}
    for name, values in columns.items():
        if isinstance(values, np.ndarray) and values.dtype.kind in "fi" and len(values):
            alike = values.view(f"i{values.itemsize}")  # by their bits: what is not a number equals itself
            if (alike == alike[0]).all():
                values = np.broadcast_to(values[0], len(values))
            else:
                digest = blake2b(values.data, digest_size=16, person=values.dtype.str.encode()).digest()
                values.flags.writeable = False
                values = seen.setdefault(digest, values)
        found[name] = values
    return found


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
        code = np.empty(len(order) + 1, dtype=self._codes.dtype)
        code[order], code[-1] = np.arange(len(order)), -1
        names = pd.Index(self._known.take(pa.array(order)).to_pandas(), dtype="str")
        for start in range(0, len(self._codes), PENDING):
            part = slice(start, start + PENDING)
            self._codes[part] = code[self._codes[part]]
        return pd.Categorical.from_codes(self._codes, categories=names, validate=False)
