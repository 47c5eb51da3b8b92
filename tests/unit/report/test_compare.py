from __future__ import annotations

import csv
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline.errors import SightlineError
from sightline.report.compare import compare_runs
from tests.unit.report.conftest import DRAWS
from tests.unit.report.fake_run import make_run


def table(out: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "tables" / f"{name}.csv").open()))


def test_a_run_compared_with_itself_differs_in_nothing_and_says_what_its_images_leave_open(
    run: Path, tmp_path: Path
) -> None:
    twin = tmp_path / "twin"
    shutil.copytree(run, twin)
    page = compare_runs(run, twin, tmp_path / "out", draws=DRAWS)
    between = table(tmp_path / "out", "between_runs")
    assert all(row["words"].startswith("not distinguishable from A: −") for row in between if row["diff_low"])
    accuracy = [row for row in between if row["label"] == "Accuracy"]
    away = 1 - 0.025 ** (1 / 20)  # what 20 images without a change leave open
    for row in accuracy:
        assert (float(row["diff_low"]), float(row["diff_high"])) == pytest.approx((-away, away), abs=1e-3)
    text = page.read_text(encoding="utf-8")
    assert "no arm's accuracy is shown to change; −0.168 to +0.168 is what these images leave open" in unescape(text)
    assert "0.000 to 0.000" not in text
    same = table(tmp_path / "out", "sameness")
    assert {row["same_margin"] for row in same} == {row["same_cells"] for row in same} == {"1.0"}
    assert {row["flips"] for row in table(tmp_path / "out", "flips_between_runs")} == {"0"}
    assert table(tmp_path / "out", "run_differences")[0]["field"] == "none"
    assert "every margin is the same in A and B" in page.read_text()


def test_a_comparison_says_which_folder_is_which(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "after", arms=("full", "target:0.3"), shift=1.5)
    text = compare_runs(run, other, tmp_path / "out", draws=DRAWS, cases=0).read_text(encoding="utf-8")
    assert "<h1>Comparison of run (A) and after (B)</h1>" in text
    assert "A is run, B is after." in text
    assert re.search(
        r'<p class="headline">From run to after accuracy of \S+( and \S+)? is (lower|higher), of 2 arms', text
    )
    assert "Run <b>A = run</b>" in text
    alike = make_run(tmp_path / "elsewhere" / "run", arms=("full", "target:0.3"), shift=0.5)
    text = compare_runs(run, alike, tmp_path / "again", draws=DRAWS, cases=0).read_text(encoding="utf-8")
    assert f"Comparison of {run.resolve()} (A) and {alike.resolve()} (B)" in text, "folders that are called alike"


def test_a_comparison_keeps_oracles_in_a_panel_of_their_own(tmp_path: Path) -> None:
    arms = ("full", "protected:0.3", "target:0.3")
    runs = [make_run(tmp_path / name, arms=arms, shift=shift) for name, shift in (("a", 0.0), ("b", 0.5))]
    compare_runs(runs[0], runs[1], tmp_path / "out", draws=DRAWS, cases=0)
    order = [row["arm"] for row in table(tmp_path / "out", "between_runs")]
    assert list(dict.fromkeys(order)) == ["full", "target:0.3", "protected:0.3"]
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "<b>protected:0.3</b> (oracle: reads the annotated boxes) accuracy" in text


def test_what_a_new_checkpoint_changes(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", arms=("full", "target:0.3", "grid:0.5"), shift=0.5)
    page = compare_runs(run, other, tmp_path / "out", draws=DRAWS)
    text = page.read_text()
    assert "only in A, and not compared" in text
    assert "only in B, and not compared: grid:0.5" in text
    assert [row["arm"] for row in table(tmp_path / "out", "sameness")] == ["full", "target:0.3"]
    full = table(tmp_path / "out", "sameness")[0]
    assert float(full["max_change"]) == pytest.approx(0.5)
    assert float(full["same_cells"]) == 1.0
    flips = table(tmp_path / "out", "flips_between_runs")[0]
    assert int(flips["no_to_yes"]) > 0
    assert int(flips["yes_to_no"]) == 0, "every margin rose"
    assert {"weight_digest"} == {row["field"] for row in table(tmp_path / "out", "run_differences")}
    assert [(row["run"], row["arm"]) for row in table(tmp_path / "out", "main")][:2] == [("A", "full"), ("B", "full")]
    assert "flips vs A" in text
    assert "The answer flips." in text


def test_different_probes_are_refused(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", images=22, arms=("full",), probe_digest="99" * 32)
    with pytest.raises(SightlineError, match=r"0 probes only in A, 4 only in B, 40 ids in common"):
        compare_runs(run, other, tmp_path / "out")
    changed = make_run(tmp_path / "changed", arms=("full",), probe_digest="98" * 32)
    with pytest.raises(SightlineError, match="their content differs"):
        compare_runs(run, changed, tmp_path / "out")


def test_no_common_arm_is_refused(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", arms=("scope:0.4",))
    with pytest.raises(SightlineError, match="no arm in common"):
        compare_runs(run, other, tmp_path / "out")


def test_runs_without_margins_are_compared_by_their_answers(tmp_path: Path) -> None:
    def without_margin(row: dict[str, Any]) -> None:
        row |= dict.fromkeys(("margin", "loss_yes", "loss_no"))

    arms = ("full", "target:0.3")
    a, b = (
        make_run(tmp_path / name, images=6, arms=arms, shift=shift, edit_row=without_margin)
        for name, shift in (("a", 0.0), ("b", 0.4))
    )
    page = compare_runs(a, b, tmp_path / "out", draws=DRAWS)
    assert "this section cannot be made" not in page.read_text(encoding="utf-8")
    same = pd.read_csv(tmp_path / "out" / "tables" / "sameness.csv")
    assert same["same_margin"].isna().all()
    assert same["same_answer"].between(0, 1).all()
