"""``python -m lab``: pages of help, options of the training script, errors in one line."""

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


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_sentence_and_no_flag_a_type(name: str) -> None:
    page = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"}).output
    assert "Show this message and exit." in page
    assert "<bool>" not in page
    assert all(option.help for option in COMMANDS[name].params if option.param_type_name == "option")
    if name == "train":
        assert page.count("╭─") >= 2, "many options stand in panels"


def test_training_has_every_option_of_its_script_and_refuses_numbers_that_never_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr("lab.reader.train.main", seen.append)
    invoke = CliRunner().invoke
    assert invoke(app, ["train", "--out", "leg"]).exit_code == 0
    words = ["--language-only", "--mixed", "--no-compile", "--batch", "16", "--lr", "3e-4", "--minutes", "30"]
    words += ["--progress", "0.5:1", "--resume", "leg2", "--workers", "3", "--preset", "toy", "--out", "leg3"]
    words += ["--form", "llava", "--both"]
    assert invoke(app, ["train", *words]).exit_code == 0
    assert vars(parse(seen[0])) == vars(parse(["--out", "leg"]))
    assert vars(parse(seen[1])) == vars(parse(words))

    for wrong in (["--minutes", "nan"], ["--lr", "inf"], ["--batch", "0"]):
        assert invoke(app, ["train", "--out", "leg", *wrong]).exit_code != 0
    assert len(seen) == 2, "no training began"


@pytest.mark.parametrize("words", [["scenes", "--split", "development", "--images", "1"], ["stand-ins"]])
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
