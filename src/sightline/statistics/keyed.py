"""Columns of names as numbers: what is sorted, counted and joined by them at the price of integers.

A column of names may come as text or as a pandas categorical. Large runs come as categoricals whose categories are in
the order of the names, so that codes sort as names do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sightline.statistics.arrays import AnyArray, IntArray


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
    names = as_index(table.index)
    place = names.get_indexer(keys.cat.categories)  # one search per name, however many rows have it
    codes = keys.cat.codes.to_numpy()
    where = np.where(codes >= 0, place[codes], -1) if len(place) else np.full(len(codes), -1)
    found = table.array.take(where, allow_fill=True) if (where < 0).any() else table.array.take(where)
    return pd.Series(found, index=keys.index, name=keys.name)


def as_index(names: pd.Index) -> pd.Index:
    """An index of names as text, however it came."""
    return names.astype(names.categories.dtype) if isinstance(names, pd.CategoricalIndex) else names
