from __future__ import annotations

import csv
import io

import pandas as pd
import pytest

from sightline.report.table import Table, TableColumn, format_range, format_value


@pytest.fixture
def table() -> Table:
    frame = pd.DataFrame(
        {
            "arm": ["a_b|c<i>", "full"],
            "score": [0.1 + 0.2, float("nan")],
            "score_low": [0.25, float("nan")],
            "score_high": [0.375, float("nan")],
            "n": [12345, 2],
        }
    )
    columns = [
        TableColumn("arm", "Arm"),
        TableColumn("score", "Score & more", "score", interval=True),
        TableColumn("n", "n", "count"),
    ]
    return Table("demo", "A 100% title", "Caption with $ and _.", columns, frame)


def test_csv_keeps_full_precision_and_bounds(table: Table) -> None:
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert float(rows[0]["score"]) == 0.1 + 0.2
    assert (rows[0]["score_low"], rows[0]["score_high"]) == ("0.25", "0.375")
    assert rows[1]["score"] == ""
    assert rows[0]["arm"] == "a_b|c<i>"


def test_markdown_escapes_what_would_break_a_row(table: Table) -> None:
    line = next(line for line in table.markdown().splitlines() if "a_b" in line)
    assert "a_b\\|c&lt;i&gt;" in line
    assert "0.300 (0.250–0.375)" in line
    assert line.replace("\\|", "").count("|") == 4


def test_latex_escapes_every_special_character(table: Table) -> None:
    text = table.latex()
    assert r"a\_b|c<i> & 0.300 (0.250--0.375) &" in text
    assert r"Score \& more" in text
    assert r"\caption{A 100\% title. Caption with \$ and \_.}" in text
    assert text.count(r"\\") == 3


def test_html_cells_carry_the_sort_value(table: Table) -> None:
    first, second = list(table.cells())
    assert float(first[1].sort) == 0.1 + 0.2
    assert (second[1].text, second[1].sort, second[1].interval) == ("–", "", "")


def test_three_files_are_written(table: Table, tmp_path) -> None:
    table.write(tmp_path / "tables")
    assert sorted(p.name for p in (tmp_path / "tables").iterdir()) == ["demo.csv", "demo.md", "demo.tex"]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (-0.014, "signed", "−0.014"),
        (0.02, "signed", "+0.020"),
        (-0.0001, "signed", "0.000"),
        (0.131, "percent", "13.1%"),
        (1e-9, "p", "<0.001"),
        (float("inf"), "score", "–"),
        (None, "count", "–"),
        (pd.NA, "count", "–"),
        (123.456, "number", "123"),
    ],
)
def test_values_as_printed(value: object, kind: str, text: str) -> None:
    assert format_value(value, kind) == text  # type: ignore[arg-type]


def test_ranges_say_to_where_a_sign_could_be_taken_for_a_dash() -> None:
    assert format_range(-0.014, 0.02, "signed") == "−0.014 to +0.020"
    assert format_range(0.1, 0.2, "percent") == "10.0–20.0%"
    assert format_range(0.1, float("nan"), "score") == ""
