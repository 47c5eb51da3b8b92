"""Evidence outside the crop: a line at the head of report and run summary, and columns that tell it apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline.commands.run import print_summary
from sightline.gate.decisions import run_gate
from sightline.report.build import build_report
from sightline.report.sections.geometry import geometry_table
from sightline.report.summary import main_table, summarise
from sightline.rows import load_run
from sightline.rows.source import read_source
from tests.unit.report.conftest import DRAWS
from tests.unit.report.fake_run import make_run

RELATIVE = {"relative_pos_ecr", "relative_anchor_ecr", "relative_neg_src", "unsupported_by_pruning"}
WARNING = "5 of 20 positives (25%) lie wholly outside what the model sees"


def cropped(row: dict[str, Any]) -> None:
    """A processor that leaves out every fourth image's evidence."""
    if int(row["image_id"][-2:]) % 4 == 0:
        row |= {"visible": 0.0, "ecr": 0.0, "anchor_ecr": 0.0, "legibility": 0.0}


@pytest.fixture(scope="module")
def crop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    arms = ("full", "target:0.3", "random:0.3", "visionzip:0.3")
    return make_run(tmp_path_factory.mktemp("runs") / "crop", arms=arms, edit_row=cropped)


def columns(run: Path) -> set[str]:
    summary = summarise(read_source([run]), DRAWS)
    return {column.key for table in (main_table(summary), geometry_table(summary)) for column in table.columns}


def test_relative_coverage_has_columns_only_where_it_says_something(run: Path, crop: Path) -> None:
    assert not columns(run) & RELATIVE
    assert columns(crop) >= RELATIVE


def test_full_covers_all_of_what_is_visible(crop: Path) -> None:
    full = summarise(read_source([crop]), DRAWS).arms.set_index("arm").loc["full"]
    assert (full["pos_ecr"], full["visible_evidence"]) == (0.75, 0.75)
    assert full["relative_pos_ecr"] == 1.0
    assert full["unsupported"] > full["unsupported_by_pruning"] == 0.0


def test_report_and_run_warn_in_one_line(
    run: Path, crop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    for folder, warns in ((run, False), (crop, True)):
        assert any(WARNING in note for note in read_source([folder]).notes) == warns
        print_summary(load_run(folder))
        printed = capsys.readouterr().out
        assert (WARNING in printed) == ("Relative" in printed.split(WARNING)[0]) == warns
    page = build_report([crop], tmp_path, draws=DRAWS).read_text(encoding="utf-8")
    assert WARNING in page


def test_a_gate_may_ask_for_coverage_of_what_is_visible_and_for_legibility(crop: Path) -> None:
    rules = ["relative_pos_ecr(full) >= 1", "illegible(full) <= 0.1", "legibility(full) >= 3", "pos_ecr(full) >= 0.9"]
    results, _ = run_gate(crop, rules, least_n=1, draws=DRAWS)
    assert [result.passed for result in results] == [True, False, True, False]


def test_the_legibility_section_has_a_line_per_arm_and_says_which_measure_orders(crop: Path, tmp_path: Path) -> None:
    page = build_report([crop], tmp_path, draws=DRAWS).read_text(encoding="utf-8")
    assert 'id="legibility"' in page
    table = pd.read_csv(tmp_path / "tables" / "legibility.csv").set_index("arm")
    assert table.index.tolist() == ["full", "target:0.3", "random:0.3", "visionzip:0.3"]
    assert {"accuracy", "pos_ecr", "legibility", "illegible", "changed"} <= set(table.columns)
    assert table["changed"].isna().tolist() == [True, False, False, False]
    legibility = table["legibility"].to_dict()
    assert legibility["full"] > legibility["random:0.3"]
    ordering = pd.read_csv(tmp_path / "tables" / "legibility_ordering.csv")
    assert list(zip(ordering["over"], ordering["change"], strict=True)) == [
        ("arms", "answer changed"),
        ("answers", "answer changed"),
        ("arms", "margin moved"),
        ("answers", "margin moved"),
    ]
    said = (tmp_path / "tables" / "legibility_ordering.md").read_text(encoding="utf-8")
    assert "Over 3 arms" in said
    assert "coverage has rho = " in said


def test_rows_without_legibility_have_no_such_section(tmp_path: Path) -> None:
    def earlier(row: dict[str, Any]) -> None:
        row["legibility"] = None

    run = make_run(tmp_path / "run", images=6, arms=("full", "target:0.3"), edit_row=earlier)
    page = build_report([run], tmp_path / "out", draws=DRAWS).read_text(encoding="utf-8")
    assert 'id="legibility"' not in page
