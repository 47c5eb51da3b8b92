"""``python -m lab``: pages of help, words for the training script, errors in one line."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from lab.__main__ import app
from lab.reader.train import parse
from sightline import SightlineError
from sightline.cli import main

COMMANDS: dict[str, Any] = dict(get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"train"}))
def test_every_option_has_a_sentence_and_no_flag_a_type(name: str) -> None:
    page = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"}).output
    assert "Show this message and exit." in page
    assert "<bool>" not in page
    assert all(option.help for option in COMMANDS[name].params if option.param_type_name == "option")


def test_training_hands_its_words_to_its_script_which_explains_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    invoke = CliRunner().invoke
    page = invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).output
    options = set(vars(parse(["--out", str(tmp_path)])))
    explained = re.findall(r"^  (?:-h, )?--([\w-]+)[^\n]*?(?: {2,}|\n {20,})\S", page, re.MULTILINE)
    assert {name.replace("-", "_") for name in explained} == options | {"help"}
    seen: list[list[str]] = []
    monkeypatch.setattr("lab.reader.train.main", seen.append)
    words = ["--language-only", "--no-compile", "--batch", "16", "--lr=3e-4", "--progress", "0.5:1", "--out", "leg3"]
    assert invoke(app, ["train", *words]).exit_code == 0
    assert seen == [words]


@pytest.mark.parametrize(
    "words", [["scenes", "--split", "development", "--images", "1"], ["stand-ins"], ["train", "--minutes", "1"]]
)
def test_a_place_that_cannot_be_written_is_one_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    out = ["--out", str(taken / "below")]
    assert isinstance(CliRunner().invoke(app, [*words, *out]).exception, SightlineError)
    monkeypatch.setattr("sys.argv", ["lab", *words, *out])
    with pytest.raises(SystemExit) as stopped:
        main(app)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("error: ")
