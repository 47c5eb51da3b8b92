"""Rows in few bytes a value: the same values as the whole table has, whatever is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sightline.rows import load_run
from sightline.rows import reader as column_arrays
from sightline.rows.reader import MERGED, count_rows, rows_at
from tests.unit.report.fake_run import EDITED, make_run


def forget_some(row: dict[str, Any]) -> None:
    """What rows may lack: text, a whole number, true or false, a float."""
    if row["probe_id"].endswith("3:yes"):
        row |= {"regime": None, "sequence_full": None, "all_half": None, "legibility": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("compact") / "run", images=12, arms=EDITED, edit_row=forget_some)


@pytest.mark.parametrize("pending", [7, 1 << 21])
def test_every_value_is_that_of_the_table(folder: Path, monkeypatch: pytest.MonkeyPatch, pending: int) -> None:
    monkeypatch.setattr(column_arrays, "PENDING", pending)
    run = load_run(folder)
    found = run.compact_frame(lambda name: True)
    assert len(found) == count_rows(run) == run.rows.num_rows
    for name in found.columns.drop(MERGED):
        values = [None if pd.isna(value) else value for value in found[name]]
        expected = run.rows.column(name).to_pylist()
        assert values == [None if value is None or value != value else value for value in expected], name
    assert found[MERGED].tolist() == [mask is not None for mask in run.rows.column("lineage_mask").to_pylist()]


def test_columns_take_few_bytes_and_names_are_in_order(folder: Path) -> None:
    found = load_run(folder).compact_frame(lambda name: True)
    assert "object" not in {str(dtype) for dtype in found.dtypes}
    assert found["label"].cat.codes.dtype == np.int8
    assert found["vision_ms"].dtype == np.float32
    for name in ("probe_id", "arm", "image_key"):
        assert found[name].cat.categories.is_monotonic_increasing
    assert "kept_mask" not in found
    assert "k_layers" not in found


def test_only_wanted_columns_are_read(folder: Path) -> None:
    found = load_run(folder).compact_frame({"ecr", "arm"}.__contains__)
    assert list(found.columns) == ["arm", "ecr", MERGED]


def test_rows_are_found_by_their_places(folder: Path) -> None:
    run = load_run(folder)
    places = [run.rows.num_rows - 1, 0, 77, 77]
    found = rows_at(run, places, ["probe_id", "arm", "kept_mask"])
    assert found.equals(run.rows.take(places).select(["probe_id", "arm", "kept_mask"]))
    assert rows_at(run, [], ["arm"]).num_rows == 0
