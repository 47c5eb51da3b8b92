"""Columns that rows got later: a folder that lacks them is read all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from sightline.core.row import row_schema
from sightline.store import load_run
from tests.earlier_release import without_marks
from tests.unit.report.fake_run import make_run

LATER = ["visible", "legibility"]


def half_seen(row: dict[str, Any]) -> None:
    """A processor that crops: of half of the images' evidence nobody sees more than a part."""
    if int(row["image_id"][-1]) % 2:
        row["visible"] = 0.75
        row["ecr"] = 0.75 * row["ecr"]


def without_later_columns(run: Path, arms: tuple[str, ...]) -> None:
    without_marks(run)
    for file in run.rglob("rows/*/*.parquet"):
        table = pq.read_table(file)
        if table.column("arm")[0].as_py() in arms:
            pq.write_table(table.drop_columns(LATER), file)


@pytest.mark.parametrize("arms", [("full", "target:0.3", "random:0.3"), ("target:0.3",), ("full",)])
def test_what_the_tower_sees_is_told_by_the_rows_that_kept_every_token(tmp_path: Path, arms: tuple[str, ...]) -> None:
    run = make_run(tmp_path / "run", images=6, arms=("full", "target:0.3", "random:0.3"), edit_row=half_seen)
    before = load_run(run).frame()
    assert set(before["visible"]) == {0.75, 1.0}
    without_later_columns(run, arms)
    after = load_run(run).frame()
    assert [name for name in after.columns if name in row_schema().names] == row_schema().names
    pd.testing.assert_series_equal(after["visible"], before["visible"])
    assert (after["legibility"].isna() == after["arm"].isin(arms)).all()


def test_without_a_row_that_kept_every_token_nothing_is_told(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", images=4, arms=("target:0.3", "random:0.3"))
    without_later_columns(run, ("target:0.3", "random:0.3"))
    frame = load_run(run).frame()
    assert frame["visible"].isna().all()
    assert frame["ecr"].notna().all()
