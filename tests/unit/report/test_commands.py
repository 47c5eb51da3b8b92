from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sightline.cli import main
from sightline.commands.report import compare, gate, report
from sightline.commands.rows import rows
from sightline.errors import SightlineError
from sightline.store.folder import RunFolder
from tests.unit.report.fake_run import make_run


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    for command in (report, compare, gate, rows):
        app.command()(command)
    return app


def test_report_says_where_it_is(app: typer.Typer, run: Path, tmp_path: Path) -> None:
    arguments = ["report", str(run), "--out", str(tmp_path / "out"), "--draws", "200", "--cases", "3"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out/report.html").exists()
    assert "report.html" in result.output


def test_compare_writes_a_page(app: typer.Typer, run: Path, tmp_path: Path) -> None:
    arguments = ["compare", str(run), str(run), "--out", str(tmp_path / "out"), "--draws", "200", "--cases", "2"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert (tmp_path / "out/tables/between_runs.md").exists()


def test_gate_exit_codes_and_files(app: typer.Typer, run: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    files = [
        "--junit",
        str(tmp_path / "gate.xml"),
        "--markdown",
        str(tmp_path / "gate.md"),
        "--draws",
        "200",
        "--least-n",
        "10",
    ]
    good = runner.invoke(app, ["gate", str(run), "--rule", "accuracy(full) >= 0.1", *files])
    assert good.exit_code == 0, good.output
    assert "passed" in good.output
    bad = runner.invoke(
        app, ["gate", str(run), "--rule", "accuracy(full) >= 0.1", "--rule", "posecr(random:0.3) >= 0.9", *files]
    )
    assert bad.exit_code == 1
    assert "failed" in bad.output
    assert (tmp_path / "gate.xml").read_text().count("<testcase") == 2
    assert (tmp_path / "gate.md").read_text().count("### Sightline gate") == 2, "summaries are appended"


def test_bad_rules_are_one_line(app: typer.Typer, run: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["gate", str(run), "--rule", "accuracy(ful) >= 0.1", "--draws", "200"])
    assert isinstance(result.exception, SightlineError)
    assert str(result.exception) == "the run has no arm 'ful'; did you mean 'full'?"


def test_the_gate_prints_n_and_refuses_few_probes(app: typer.Typer, run: Path) -> None:
    result = CliRunner().invoke(app, ["gate", str(run), "--rule", "accuracy(full) >= 0.1", "--draws", "200"])
    assert result.exit_code == 1
    assert "refused" in result.output
    assert " 40 " in result.output


def test_a_gate_takes_a_file_of_rules_and_several_runs(app: typer.Typer, run: Path, tmp_path: Path) -> None:
    worse = make_run(tmp_path / "worse", shift=-3.0, arms=("full",))
    file = tmp_path / "rules.txt"
    file.write_text("accuracy(full) >= 0.55  # in every run\n", encoding="utf-8")
    options = ["--rules", str(file), "--draws", "200", "--least-n", "10"]
    assert CliRunner().invoke(app, ["gate", str(run), *options]).exit_code == 0
    both = CliRunner().invoke(app, ["gate", str(run), str(worse), *options])
    assert both.exit_code == 1
    assert "Gate on run" in both.output
    assert "Gate on worse" in both.output


def test_a_gate_on_an_unfinished_run_passes_only_when_asked_to(app: typer.Typer, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", arms=("full", "grid:0.3"))
    RunFolder(run).rows_file("grid:0.3", 0).unlink()
    asked = ["gate", str(run), "--rule", "accuracy(full) >= 0.1", "--draws", "200", "--least-n", "10"]
    assert CliRunner().invoke(app, asked).exit_code == 1
    assert CliRunner().invoke(app, [*asked, "--allow-partial"]).exit_code == 0


@pytest.mark.parametrize(("words", "error"), [([], RuntimeError("a bug")), (["--debug"], SightlineError("bad input"))])
def test_an_error_inside_the_gate_is_two_never_one(
    words: list[str], error: Exception, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("sightline.gate.decisions.gate_runs", fail)
    monkeypatch.setattr("sys.argv", ["sightline", *words, "gate", str(run), "--rule", "accuracy(full) >= 0.1"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert str(error) in capsys.readouterr().err


def test_report_compare_and_rows_say_that_a_run_is_not_finished(app: typer.Typer, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", images=4, arms=("full", "grid:0.3", "target:0.3"))
    few = ["--out", str(tmp_path / "out"), "--draws", "100", "--cases", "0"]
    commands = (["report", str(run), *few], ["rows", str(run)], ["compare", str(run), str(run), *few])
    for arguments in commands:
        assert "not finished" not in CliRunner().invoke(app, arguments).stderr
    RunFolder(run).rows_file("grid:0.3", 0).unlink()
    for arguments in commands:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        line = f"note: {run}: the run is not finished: 1 of its shards are still to be computed"
        assert result.stderr.splitlines()[0] == line
