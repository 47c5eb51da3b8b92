"""Two annotators' files are compared field by field, over the rows that both have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from sightline.analysis.regions import agreement_table
from sightline.cli import app
from sightline.errors import SightlineError
from sightline.statistics.agreement import cohen_kappa


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    labels = [("p1", "yes", "yes"), ("p2", "yes", "no"), ("p3", "no", "no"), ("p4", "no", "no"), ("p5", "yes", "yes")]
    for number in (0, 1):
        lines = ["probe_id,valid,note", *(f"{row[0]},{row[1 + number]},n{number}" for row in labels)]
        (tmp_path / f"{number}.csv").write_text("\n".join([*lines, f"only{number},yes,x"]) + "\n")
    return tmp_path / "0.csv", tmp_path / "1.csv"


def test_labels_have_a_rate_and_a_kappa(files: tuple[Path, Path]) -> None:
    line = agreement_table(*files, draws=200).set_index("field").loc["valid"]
    assert line["n"] == 5, "rows of one annotator alone are left out"
    assert line["agreement"] == pytest.approx(0.8)
    assert line["agreement_low"] < 0.8 < line["agreement_high"]
    assert line["kappa"] == pytest.approx(cohen_kappa([1, 1, 0, 0, 1], [1, 0, 0, 0, 1]))


def test_boxes_are_matched(tmp_path: Path) -> None:
    square, half = [0.0, 0.0, 0.2, 0.2], [0.0, 0.0, 0.1, 0.2]
    for name, boxes in (("a", [[square], [square]]), ("b", [[square], [half]])):
        rows = [{"id": f"q{i}", "regions": each} for i, each in enumerate(boxes)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (line,) = agreement_table(tmp_path / "a.jsonl", tmp_path / "b.jsonl").to_dict("records")
    assert line["matched_iou"] == pytest.approx((1.0 + 0.5) / 2)
    assert line["union_iou"] == pytest.approx(0.75)
    assert (line["first_covered"], line["second_covered"]) == (pytest.approx(0.75), pytest.approx(1.0))
    assert line["agreement"] == 1.0, "every pair has IoU 0.5 at least"


def test_what_cannot_be_compared_is_said_in_one_line(files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="field 'colour' is not in both files; they share valid, note"):
        agreement_table(*files, fields=["colour"])
    other = tmp_path / "other.csv"
    other.write_text("probe_id,valid\nq1,yes\n")
    with pytest.raises(SightlineError, match="have no row in common"):
        agreement_table(files[0], other)
    other.write_text("probe_id,valid\np1,yes\np1,no\n")
    with pytest.raises(SightlineError, match="row 2 decides p1 a second time"):
        agreement_table(files[0], other)
    other.write_text("name,valid\np1,yes\n")
    with pytest.raises(SightlineError, match="row 1 has none of probe_id, sample_id, id"):
        agreement_table(files[0], other)


def test_the_command_prints_and_writes_it(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "agreement.csv"
    done = CliRunner().invoke(app, ["agreement", *map(str, files), "--field", "valid", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "0.800" in done.output
    assert pd.read_csv(out)["agreement"].tolist() == [0.8]


@pytest.mark.parametrize("boxes", [[[0.1, 0.1, 0.2]], [[0.1, 0.1, 0.2, {"a": 1}]], [["a", 0, 1, 1]], [5], [None]])
def test_boxes_that_are_none_are_refused_with_their_row(tmp_path: Path, boxes: list[Any]) -> None:
    for name, drawn in (("one", [[0, 0, 1, 1]]), ("two", boxes)):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"id": "p7", "regions": drawn}) + "\n")
    with pytest.raises(SightlineError, match=r"two\.jsonl: 'regions' of row p7"):
        agreement_table(tmp_path / "one.jsonl", tmp_path / "two.jsonl", draws=100)
