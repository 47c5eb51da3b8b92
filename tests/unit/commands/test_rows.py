from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from sightline.cli import app
from sightline.errors import SightlineError
from sightline.rows import load_run
from tests.unit.report.fake_run import make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def formula(row: dict[str, object]) -> None:
        if row["probe_id"] == "img0000:yes":
            row["kind"] = '=HYPERLINK("x")'

    return make_run(tmp_path_factory.mktemp("rows") / "run", images=4, arms=("full", "target:0.3"), edit_row=formula)


def printed(*words: str) -> str:
    result = CliRunner().invoke(app, ["rows", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_every_format_has_the_rows_in_order(run: Path, tmp_path: Path) -> None:
    whole = load_run(run).rows
    lines = list(csv.DictReader(io.StringIO(printed(str(run)))))
    assert list(lines[0]) == whole.column_names
    assert [line["probe_id"] for line in lines] == whole.column("probe_id").to_pylist()
    assert [float(line["margin"]) for line in lines] == whole.column("margin").to_pylist()
    objects = [json.loads(line) for line in printed(str(run), "--format", "jsonl").splitlines()]
    assert [line["margin"] for line in objects] == whole.column("margin").to_pylist()
    printed(str(run), "--format", "parquet", "--out", str(tmp_path / "rows.parquet"))
    assert pq.read_table(tmp_path / "rows.parquet").equals(whole)
    assert [file.name for file in tmp_path.iterdir()] == ["rows.parquet"]


def test_columns_and_arms_are_chosen(run: Path) -> None:
    frame = pd.read_csv(io.StringIO(printed(str(run), "--columns", "ecr, probe_id", "--arm", "target:0.3")))
    assert list(frame.columns) == ["ecr", "probe_id"]
    assert len(frame) == 8
    with pytest.raises(SightlineError, match="rows have no column 'probe'; did you mean probe_id"):
        printed(str(run), "--columns", "probe")


def test_a_formula_is_neutral_in_csv_alone(run: Path) -> None:
    assert '"\'=HYPERLINK(""x"")"' in printed(str(run), "--columns", "kind")
    assert json.loads(printed(str(run), "--columns", "kind", "--format", "jsonl").split("\n")[0]) == {
        "kind": '=HYPERLINK("x")'
    }


def test_several_folders_are_one_run_only_if_that_is_said(run: Path) -> None:
    with pytest.raises(SightlineError, match="2 run folders given where one is taken; --as-one joins"):
        printed(str(run), str(run))
    assert printed(str(run), str(run), "--as-one") == printed(str(run))
