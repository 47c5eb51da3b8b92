"""``sightline doctor`` on the command line: what it prints and writes, and how it ends."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from sightline.backbones.language import LanguageModel
from tests.command_line import sightline
from tests.refusals import Refused


def doctor(*words: object, code: int = 0) -> Result:
    return sightline("doctor", "--device", "cpu", *words, code=code, width=300)


def test_it_prints_a_line_a_check_and_writes_json_and_page(zoo: Callable[[str], Path], tmp_path: Path) -> None:
    checkpoint = zoo("llava_next")
    done = doctor("--model", checkpoint, "--json", tmp_path / "a" / "found.json", "--page", tmp_path / "p.html")
    lines = done.stdout.splitlines()
    assert sum(line.startswith("ok ") for line in lines) == 13
    assert lines[-1] == "all 13 checks passed"
    assert "served by   LlavaNext; language: loop" in done.stdout
    assert "no: its processor enlarges every image to a canvas from a list" in done.stdout
    found = json.loads((tmp_path / "a" / "found.json").read_text(encoding="utf-8"))
    assert found["model"] == "llava_next"
    assert [check["passed"] for check in found["checks"].values()] == [True] * 13
    assert "All 13 checks passed." in (tmp_path / "p.html").read_text(encoding="utf-8")
    done = doctor("--model", checkpoint, "--no-methods")
    assert done.stdout.splitlines()[-1] == "all 11 checks passed"


def test_a_failed_check_ends_with_exit_code_1(
    zoo: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = LanguageModel.prefix_logits
    monkeypatch.setattr(LanguageModel, "prefix_logits", lambda language, prefix: logits(language, prefix) + 1)
    done = doctor("--model", zoo("llava_next"), "--json", tmp_path / "found.json", code=1)
    assert "1 of 13 checks failed" in done.stdout
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert found["passed"] is False
    assert [name for name, check in found["checks"].items() if not check["passed"]] == ["own_logits"]


def test_a_type_that_cannot_be_served_is_refused_by_name_and_reason(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "idefics"}', encoding="utf-8")
    refused("is a 'idefics' model: its class has no get_image_features", doctor, "--model", str(tmp_path))
