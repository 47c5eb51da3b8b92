"""The table that a run prints: by one name per metric, whole in any width."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sightline.commands.run_summary import print_summary, summary
from sightline.rows.run import load_run
from sightline.statistics.arm_rows import plain_rows
from sightline.statistics.summaries import arm_summary
from tests.unit.report.fake_run import make_run
from tests.unit.report.test_overview import says_no

ARMS = ("full", "target:0.3", "full+remove_evidence", "target:0.3+restore_evidence=0.25", "target:0.3+remove_evidence")


def printed(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    print_summary(load_run(path))
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [80, 100, 200])
def test_every_number_is_printed_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    arms = ("full", "target:0.3", "random:0.15", "visionzip:0.3")
    lines = printed(make_run(tmp_path / "run", images=6, arms=arms), capsys, monkeypatch, width)
    assert not any("…" in line for line in lines)
    for arm in arms:
        (line,) = (line for line in lines if line.startswith(f"{arm} "))
        assert len(re.findall(r"\d\.\d{3}\b", line)) == 6
        assert len(re.findall(r"\b\d+\.\d\b(?!\d)", line.removeprefix(arm))) == 2
        assert len(line) <= width


def test_plain_rows_alone_are_summed_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(make_run(tmp_path / "run", images=4, arms=ARMS), capsys, monkeypatch, 80)
    assert [line.split()[0] for line in lines if re.match(r"(full|target)", line)] == ["full", "target:0.3"]


def test_the_summary_has_the_numbers_of_the_report(tmp_path: Path) -> None:
    frame = plain_rows(load_run(make_run(tmp_path / "run", images=8, arms=ARMS)).frame())
    table, report = summary(frame), arm_summary(frame, draws=10)
    for label, name in {
        "Accuracy": "accuracy",
        "hFPR": "hfpr",
        "PosECR": "pos_ecr",
        "Unsupported": "unsupported",
    }.items():
        assert table[label].tolist() == pytest.approx(report[name].tolist(), nan_ok=True)


def test_oracles_are_printed_under_a_heading_of_their_own_with_columns_in_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", images=6, arms=("full", "protected:0.3", "target:0.3"))
    lines = printed(run, capsys, monkeypatch, 120)
    found = {line.split()[0]: line for line in lines if re.match(r"(full|target|protected)", line)}
    order = [lines.index(line) for line in found.values()]
    free, oracles = (next(i for i, line in enumerate(lines) if line.startswith(letter)) for letter in ("A.", "C."))
    assert list(found) == ["full", "target:0.3", "protected:0.3"]
    assert free < order[0] < order[1] < oracles < order[2]
    assert lines[oracles].startswith("C. Annotation-box oracles: diagnostics, not a deployable ranking")
    ends = [[match.end() for match in re.finditer(r"\S+", line)][1:] for line in found.values()]
    assert ends[0] == ends[1] == ends[2], "numbers end at the same column in every panel"


def test_a_model_from_whose_answers_nothing_can_be_read_is_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "nothing about pruning can be read from its answers"
    guessing = make_run(tmp_path / "guessing", arms=("full", "target:0.3"), edit_row=says_no)
    assert f"The model answers at chance: {said}" in " ".join(printed(guessing, capsys, monkeypatch, 200))
    few = make_run(tmp_path / "few", images=4, arms=("full", "target:0.3"))
    assert f"4 images are fewer than 10: {said}." in printed(few, capsys, monkeypatch, 200)
    reading = make_run(tmp_path / "reading", images=30, arms=("full", "target:0.3"))
    assert said not in " ".join(printed(reading, capsys, monkeypatch, 200))
