from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sightline.commands.report import compare, gate, report
from sightline.errors import SightlineError


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    for command in (report, compare, gate):
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
    files = ["--junit", str(tmp_path / "gate.xml"), "--markdown", str(tmp_path / "gate.md"), "--draws", "200"]
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
