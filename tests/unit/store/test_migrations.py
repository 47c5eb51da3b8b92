"""Rows and images of folders that were written before a column was."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from sightline.core.row import row_schema
from sightline.store.load import load_run
from sightline.store.migrations import migrated_images, migrated_rows
from tests.unit.report.fake_run import make_run

FILE = Path("00000.parquet")
"""What messages would name."""


def rows(selector: str, arguments: dict[str, object], boxes_ms: float | None = None) -> pa.Table:
    """Two rows of one arm, as they were before rows had a regime."""
    row = {
        "selector": selector,
        "arguments": json.dumps(arguments),
        "box_source": "annotation" if boxes_ms is None else "rapidocr",
        "boxes_ms": boxes_ms,
    }
    return pa.Table.from_pylist([row, row], schema=row_schema()).drop_columns(["regime"])


@pytest.mark.parametrize(
    ("selector", "arguments", "boxes_ms", "regime", "boxes"),
    [
        ("full", {}, None, "full", "none"),
        ("target", {"score": "target", "weight": 0.85, "top": 2}, None, "box-free method", "none"),
        ("target", {"score": "overlap", "weight": 0.85, "top": 2}, None, "oracle", "annotation"),
        ("protected", {}, None, "oracle", "annotation"),
        ("protected", {}, 400.0, "detector-assisted", "rapidocr"),
        ("masks", {"file": "masks.jsonl", "field": "kept_indices", "variant": ""}, None, "replay", "none"),
        ("somebody_elses_method", {}, None, None, "annotation"),
        ("target", {"an_argument_of_another_version": 1}, None, None, "annotation"),
    ],
)
def test_rows_without_a_regime_get_it_from_their_selector(
    selector: str, arguments: dict[str, object], boxes_ms: float | None, regime: str | None, boxes: str
) -> None:
    found = migrated_rows(rows(selector, arguments, boxes_ms), "arm", FILE)
    assert found.column_names == row_schema().names
    assert found.column("regime").to_pylist() == [regime, regime]
    assert found.column("box_source").to_pylist() == [boxes, boxes]


def test_rows_that_say_their_regime_are_left_alone() -> None:
    table = pa.Table.from_pylist([{"selector": "target", "regime": "replay"}], schema=row_schema())
    assert migrated_rows(table, "arm", FILE) is table


def test_images_of_folders_without_details_have_none(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run", images=2, arms=("full",)))
    before = run.images.drop_columns(["details", "detail_boxes"])
    after = migrated_images(before)
    assert after.column_names == run.images.column_names
    assert after.column("details").to_pylist() == [None, None]


def test_rows_of_one_budget_for_all_spent_what_they_kept() -> None:
    later = ["policy", "levels", "keep_spent", "decided_on"]
    row = {"selector": "target", "regime": "box-free method", "budget": "0.3", "keep": 0.31}
    table = pa.Table.from_pylist([row], schema=row_schema()).drop_columns(later)
    found = migrated_rows(table, "target:0.3", FILE)
    assert found.column_names == row_schema().names
    assert found.select(later).to_pylist() == [
        {"policy": "none", "levels": "0.3", "keep_spent": 0.31, "decided_on": None}
    ]
