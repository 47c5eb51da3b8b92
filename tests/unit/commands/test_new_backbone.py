"""``sightline new-backbone``: what it writes runs, and it never overwrites anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sightline.commands.new_package import new_backbone, write_backbone
from sightline.errors import SightlineError
from tests.contract.installed import install, run_with
from tests.warm_python import run_python


def test_the_generated_test_passes(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    written = write_backbone("far_sighted-2.5", folder)
    module = "sightline_far_sighted_2_5"
    assert [path.name for path in written] == [f"{module}.py", f"test_{module}.py", "pyproject.toml", "README.md"]
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    done = run_python(words, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_generated_test_fails_where_the_class_is_wrong(tmp_path: Path) -> None:
    write_backbone("mine_vl", tmp_path)
    module = tmp_path / "sightline_mine_vl.py"
    text = module.read_text(encoding="utf-8")
    changed = text.replace("if self.options.whole:\n            cells", "if True:\n            cells")
    assert changed != text
    module.write_text(changed, encoding="utf-8")
    done = run_python(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)], cwd=tmp_path)
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert "pixels away" in done.stdout


FOUND = """
from sightline.backbones import BACKBONES, options_for
kind = BACKBONES.get("mine_vl")
print(kind.__module__, kind.__name__, *options_for("mine_vl").described())
"""


def test_installed_it_is_found_by_its_entry_point(tmp_path: Path) -> None:
    write_backbone("mine_vl", tmp_path / "source")
    install(tmp_path / "source", tmp_path / "site")
    assert run_with(tmp_path / "site", FOUND) == "sightline_mine_vl MineVl whole"


def test_the_generated_code_is_clean(tmp_path: Path) -> None:
    write_backbone("mine_vl", tmp_path)
    ruff = [sys.executable, "-m", "ruff"]
    for words in (["check", "--select", "E,F,W,I,B,UP"], ["format", "--check"]):
        done = subprocess.run(
            [*ruff, *words, "--line-length", "120", "."], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout


def test_the_command_says_what_comes_next(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(new_backbone)
    result = CliRunner().invoke(app, ["mine_vl", "--out", str(tmp_path / "here")])
    assert result.exit_code == 0
    assert "pip install -e" in result.output
    assert "sightline doctor --model" in result.output


@pytest.mark.parametrize("name", ["Mine", "2nd", "a__b", "../up", "a b", ""])
def test_impossible_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SightlineError, match="cannot be a model_type"):
        write_backbone(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_type_that_has_a_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="'qwen3_vl' has a class already"):
        write_backbone("qwen3_vl", tmp_path)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("precious", encoding="utf-8")
    with pytest.raises(SightlineError, match="exists already"):
        write_backbone("mine_vl", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
