"""``sightline new-selector`` and ``new-backbone``: what they write runs, and they never overwrite or hide anything."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sightline.commands.new_package import write_backbone, write_selector
from tests.command_line import sightline
from tests.contract.installed import install, run_with
from tests.refusals import Refused
from tests.warm_python import run_python

Write = Callable[[str, Path], list[Path]]
BACKBONE = "sightline_far_sighted_2_5"
PROJECT = ["pyproject.toml"]
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir"]


def outcome(folder: Path, code: int = 0) -> str:
    done = run_python([*PYTEST, str(folder), str(folder)], cwd=folder)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("write", "name", "files"),
    [
        (write_selector, "very_long_tokens", ["very_long_tokens.py", "test_very_long_tokens.py", *PROJECT]),
        (write_backbone, "far_sighted-2.5", [f"{BACKBONE}.py", f"test_{BACKBONE}.py", *PROJECT, "README.md"]),
    ],
)
def test_generated_tests_pass_on_right_classes_only(tmp_path: Path, write: Write, name: str, files: list[str]) -> None:
    folder = tmp_path / "mine"
    assert [path.name for path in write(name, folder)] == files
    assert "2 passed" in outcome(folder)
    if write is write_backbone:
        module = folder / f"{BACKBONE}.py"
        text = module.read_text(encoding="utf-8")
        changed = text.replace("if self.options.whole:\n            cells", "if True:\n            cells")
        assert changed != text
        module.write_text(changed, encoding="utf-8")
        said = outcome(folder, code=1)
        assert "1 failed, 1 passed" in said
        assert "pixels away" in said


FOUND = """
from sightline.backbones import BACKBONES, options_for
kind = BACKBONES.get("mine_vl")
print(kind.__module__, kind.__name__, *options_for("mine_vl").described())
"""


def test_installed_it_is_found_by_its_entry_point(tmp_path: Path) -> None:
    write_backbone("mine_vl", tmp_path / "source")
    install(tmp_path / "source", tmp_path / "site")
    assert run_with(tmp_path / "site", FOUND) == "sightline_mine_vl MineVl whole"


CHECK, FORMAT = ["check", "--select", "E,F,W,I,B,UP"], ["format", "--check"]


@pytest.mark.parametrize(("write", "asked"), [(write_selector, [CHECK]), (write_backbone, [CHECK, FORMAT])])
def test_the_generated_code_is_clean(tmp_path: Path, write: Write, asked: list[list[str]]) -> None:
    write("mine_vl", tmp_path)
    for words in asked:
        ruff = [sys.executable, "-m", "ruff", *words, "--line-length", "120", "."]
        done = subprocess.run(ruff, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout


def test_the_command_says_what_comes_next(tmp_path: Path) -> None:
    for command, name, then in (
        ("new-selector", "longest", "--arm longest:0.3"),
        ("new-selector", "My-Method", "--arm my_method:0.3"),
        ("new-selector", "TopRows 2", "--arm top_rows_2:0.3"),
        ("new-backbone", "mine_vl", "sightline doctor --model"),
    ):
        result = sightline(command, name, "--out", tmp_path / name)
        assert "pip install -e" in result.output
        assert then in result.output


@pytest.mark.parametrize(
    ("write", "names", "reason"),
    [
        (write_selector, ["Target2", "2nd", "with-dash", "a__b", "class", "../up", ""], "'{}' cannot name a selector"),
        (write_selector, ["target"], "selector '{}' exists already"),
        (write_selector, ["json"], "'{}' exists already and would be hidden"),
        (write_backbone, ["Mine", "2nd", "a__b", "../up", "a b", ""], "'{}' cannot be a model_type"),
        (write_backbone, ["qwen3_vl"], "'{}' has a class already"),
    ],
)
def test_impossible_and_taken_names_are_refused(
    tmp_path: Path, write: Write, names: list[str], reason: str, refused: Refused
) -> None:
    for name in names:
        refused(reason.format(name), write, name, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("write", "name"), [(write_selector, "mine_vl.py"), (write_backbone, "README.md")])
def test_nothing_is_overwritten(tmp_path: Path, write: Write, name: str, refused: Refused) -> None:
    file = tmp_path / name
    file.write_text("precious", encoding="utf-8")
    refused(f"{name} exists already", write, "mine_vl", tmp_path)
    assert file.read_text(encoding="utf-8") == "precious"
    assert list(tmp_path.iterdir()) == [file]
