"""``sightline new-selector``: what it writes runs, and it never overwrites or hides anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sightline.commands.new_package import new_selector, write_selector
from sightline.errors import SightlineError
from tests.warm_python import run_python


def test_the_generated_test_passes(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    written = write_selector("very_long_tokens", folder)
    assert [path.name for path in written] == ["very_long_tokens.py", "test_very_long_tokens.py", "pyproject.toml"]
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    done = run_python(words, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_generated_code_is_clean(tmp_path: Path) -> None:
    write_selector("longest", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--select", "E,F,W,I,B,UP", "--line-length", "120", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_command_says_what_comes_next(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(new_selector)
    result = CliRunner().invoke(app, ["longest", "--out", str(tmp_path / "here")])
    assert result.exit_code == 0
    assert "pip install -e" in result.output
    assert "--arm longest:0.3" in result.output


@pytest.mark.parametrize("name", ["Target2", "2nd", "with-dash", "a__b", "class", "../up", ""])
def test_impossible_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SightlineError, match="cannot name a selector"):
        write_selector(name, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "reason"), [("target", "exists already"), ("json", "would be hidden")])
def test_taken_names_are_refused(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(SightlineError, match=reason):
        write_selector(name, tmp_path)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "longest.py").write_text("precious", encoding="utf-8")
    with pytest.raises(SightlineError, match="exists already"):
        write_selector("longest", tmp_path)
    assert (tmp_path / "longest.py").read_text(encoding="utf-8") == "precious"
    assert not (tmp_path / "pyproject.toml").exists()
