"""Two runs compared; the commands around reports, comparisons and gates."""

import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from sightline.cli import main
from sightline.errors import SightlineError
from sightline.report.compare import compare_runs
from sightline.store.folder import RunFolder
from tests.command_line import sightline
from tests.refusals import Refused
from tests.runs.pages import comparison_of, missing
from tests.runs.yes_no import WITHOUT_MARGIN, make_run


def test_a_run_compared_with_itself_differs_in_nothing_that_its_images_show(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "twin")
    page = comparison_of(tmp_path / "out", run, tmp_path / "twin")
    between = page.rows("between_runs")
    assert all(row["words"].startswith("not distinguishable from A: −") for row in between if row["diff_low"])
    away = 1 - 0.025 ** (1 / 20)  # what 20 images without a change leave open
    for row in between:
        if row["label"] == "Accuracy":
            assert (float(row["diff_low"]), float(row["diff_high"])) == pytest.approx((-away, away), abs=1e-3)
    said = "no arm's accuracy is shown to change; −0.168 to +0.168 is what these images leave open"
    assert missing(unescape(page.text), said, "every margin is the same in A and B") == []
    assert "0.000 to 0.000" not in page.text
    assert {row[same] for row in page.rows("sameness") for same in ("same_margin", "same_cells")} == {"1.0"}
    assert {row["flips"] for row in page.rows("flips_between_runs")} == {"0"}
    assert page.rows("run_differences")[0]["field"] == "none"


def test_what_a_new_checkpoint_changes_and_which_folder_is_which(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "after", arms=("full", "target:0.3", "grid:0.5"), shift=1.5)
    page = comparison_of(tmp_path / "out", run, other, cases=4)
    headline = r'<p class="headline">From run to after accuracy of \S+( and \S+)? is (lower|higher), of 2 arms'
    assert re.search(headline, page.text)
    said = ("<h1>Comparison of run (A) and after (B)</h1>", "A is run, B is after.", "Run <b>A = run</b>")
    alone = ("only in A, and not compared", "only in B, and not compared: grid:0.5", "flips vs A")
    assert missing(page.text, *said, *alone) == []
    full, target = page.rows("sameness")
    assert (full["arm"], target["arm"]) == ("full", "target:0.3")
    assert (float(full["max_change"]), float(full["same_cells"])) == (pytest.approx(1.5), 1.0)
    flips = page.rows("flips_between_runs")[0]
    assert int(flips["no_to_yes"]) > int(flips["yes_to_no"]) == 0, "every margin rose"
    assert {"weight_digest"} == {row["field"] for row in page.rows("run_differences")}
    assert [(row["run"], row["arm"]) for row in page.rows("main")][:2] == [("A", "full"), ("B", "full")]
    near = make_run(tmp_path / "near", arms=("full", "target:0.3"), shift=0.5)
    assert "The answer flips." in comparison_of(tmp_path / "out", run, near, cases=4).text


def test_folders_called_alike_oracles_and_runs_without_margins(tmp_path: Path) -> None:
    arms = ("full", "protected:0.3", "target:0.3")
    sides = (("a", 0.0), ("b", 0.5))
    first, second = (make_run(tmp_path / name / "run", images=8, arms=arms, shift=shift) for name, shift in sides)
    page = comparison_of(tmp_path / "out", first, second)
    assert f"Comparison of {first.resolve()} (A) and {second.resolve()} (B)" in page.text
    order = [row["arm"] for row in page.rows("between_runs")]
    assert list(dict.fromkeys(order)) == ["full", "target:0.3", "protected:0.3"]
    assert "<b>protected:0.3</b> (oracle: reads the annotated boxes) accuracy" in page.text
    made: dict[str, Any] = {"images": 6, "arms": ("full", "target:0.3"), "edit_row": WITHOUT_MARGIN}
    a, b = (make_run(tmp_path / f"bare {name}", shift=shift, **made) for name, shift in sides)
    page = comparison_of(tmp_path / "by answers", a, b)
    assert "this section cannot be made" not in page.text
    same = page.frame("sameness")
    assert same["same_margin"].isna().all()
    assert same["same_answer"].between(0, 1).all()


def test_runs_that_share_no_probes_or_no_arm_are_refused(run: Path, tmp_path: Path, refused: Refused) -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"images": 22, "probe_digest": "99" * 32}, "0 probes only in A, 4 only in B, 40 ids in common"),
        ({"probe_digest": "98" * 32}, "their content differs"),
        ({"arms": ("scope:0.4",)}, "no arm in common"),
    )
    for number, (other, about) in enumerate(cases):
        folder = make_run(tmp_path / f"other{number}", **{"arms": ("full",), **other})
        refused(about, compare_runs, run, folder, tmp_path / "out")


# The commands.


def test_gate_exit_codes_files_and_several_runs(run: Path, tmp_path: Path, refused: Refused) -> None:
    files = ["--junit", tmp_path / "gate.xml", "--markdown", tmp_path / "gate.md"]
    asked = ["gate", run, "--rule", "accuracy(full) >= 0.1", *files, "--draws", 200]
    assert "passed" in sightline(*asked, "--least-n", 10).output
    bad = sightline(*asked, "--rule", "posecr(random:0.3) >= 0.9", "--least-n", 10, code=1)
    assert "failed" in bad.output
    assert (tmp_path / "gate.xml").read_text().count("<testcase") == 2
    assert (tmp_path / "gate.md").read_text().count("### Sightline gate") == 2, "summaries are appended"
    assert missing(sightline(*asked, code=1).output, "refused", " 40 ") == []
    refused("no arm 'ful'", sightline, "gate", run, "--rule", "accuracy(ful) >= 0.1", "--draws", 200)
    worse = make_run(tmp_path / "worse", shift=-3.0, arms=("full",))
    file = tmp_path / "rules.txt"
    file.write_text("accuracy(full) >= 0.55  # in every run\n", encoding="utf-8")
    options = ["--rules", file, "--draws", 200, "--least-n", 10]
    sightline("gate", run, *options)
    both = sightline("gate", run, worse, *options, code=1)
    assert missing(both.output, "Gate on run", "Gate on worse") == []


def test_an_error_inside_the_gate_is_two_never_one(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, error in ([], RuntimeError("a bug")), (["--debug"], SightlineError("bad input")):

        def fail(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr("sightline.gate.decisions.gate_runs", fail)
        monkeypatch.setattr("sys.argv", ["sightline", *words, "gate", str(run), "--rule", "accuracy(full) >= 0.1"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert str(error) in capsys.readouterr().err


def test_commands_say_that_a_run_is_not_finished_and_a_gate_passes_only_when_asked_to(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", images=10, arms=("full", "grid:0.3"))
    few = ["--out", tmp_path / "out", "--draws", 100, "--cases", 0]
    commands: tuple[list[Any], ...] = (["report", run, *few], ["rows", run], ["compare", run, run, *few])
    assert "not finished" not in sightline(*commands[1]).stderr
    RunFolder(run).rows_file("grid:0.3", 0).unlink()
    for arguments in commands:
        result = sightline(*arguments)
        assert arguments[0] == "rows" or "report.html" in result.output
        line = f"note: {run}: the run is not finished: 1 of its shards are still to be computed"
        assert result.stderr.splitlines()[0] == line
    for file in ("report.html", "tables/main.csv", "tables/between_runs.md"):
        assert (tmp_path / "out" / file).exists()
    asked = ["gate", run, "--rule", "accuracy(full) >= 0.1", "--draws", 200, "--least-n", 10]
    sightline(*asked, code=1)
    sightline(*asked, "--allow-partial")
