"""Names as numbers: the same answers for text and for categoricals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sightline.statistics.arm_rows import as_names, in_name_order, looked_up, numbered

NAMES = ["b", "a", "c", "a", "b"]
SORTED = pd.Series(pd.Categorical(NAMES, categories=["a", "b", "c", "d"]))
UNSORTED = pd.Series(pd.Categorical(NAMES, categories=["c", "b", "a"]))
TEXT = pd.Series(NAMES)


@pytest.mark.parametrize("column", [TEXT, SORTED, UNSORTED], ids=["text", "sorted", "unsorted"])
def test_numbers_are_places_among_the_sorted_names_that_occur(column: pd.Series) -> None:
    index, names = numbered(column)
    assert names.tolist() == ["a", "b", "c"]
    assert names[index].tolist() == NAMES


@pytest.mark.parametrize("column", [TEXT, SORTED, UNSORTED], ids=["text", "sorted", "unsorted"])
def test_looking_up_is_mapping(column: pd.Series) -> None:
    table = pd.Series([1.0, 2.0], index=["b", "a"])
    np.testing.assert_array_equal(looked_up(column, table), [1.0, 2.0, np.nan, 2.0, 1.0])
    whole = pd.Series([True, False, True], index=["a", "b", "c"])
    found = looked_up(column, whole)
    assert found.dtype == bool
    assert found.tolist() == [False, True, True, True, False]


def test_looking_up_in_an_index_of_categories() -> None:
    table = pd.Series(["x", "y", "z"], index=pd.CategoricalIndex(["c", "b", "a"]))
    assert looked_up(SORTED, table).tolist() == ["y", "z", "x", "z", "y"]


def test_a_missing_name_has_no_value() -> None:
    column = pd.Series(pd.Categorical(["a", None], categories=["a"]))
    assert not in_name_order(column)
    np.testing.assert_array_equal(looked_up(column, pd.Series([5.0], index=["a"])), [5.0, np.nan])


def test_names_come_back_as_text() -> None:
    assert as_names(SORTED).tolist() == NAMES
    assert as_names(TEXT) is TEXT
    assert in_name_order(SORTED)
    assert not in_name_order(UNSORTED)
