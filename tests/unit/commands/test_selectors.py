"""``sightline selectors``: the list survives other people's mistakes, and one method says all about itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sightline.commands.methods import selectors
from sightline.selectors import SELECTORS


def shown(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(selectors)
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def _broken() -> object:
    SELECTORS.names()
    SELECTORS.add("broken_plug_in", "no_such_module_anywhere:Thing")
    yield
    del SELECTORS._entries["broken_plug_in"]
    del SELECTORS._refused["broken_plug_in"]


@pytest.mark.usefixtures("_broken")
def test_a_broken_plug_in_is_listed_with_the_reason_in_one_line() -> None:
    lines = shown().splitlines()
    (line,) = [line for line in lines if "broken_plug_in" in line]
    assert line.startswith("broken: selector 'broken_plug_in' cannot be loaded (ModuleNotFoundError")
    assert any(line.startswith("visionzip_qwen") for line in lines)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("full", ["role: reference", "merges tokens: no", "reads boxes: no", "signals: none"]),
        ("target", ["role: method", "reads boxes: no, unless its arguments say so", "acts: before the language model"]),
        ("protected", ["reads boxes: yes", "artifact profile, llava: score=prompt"]),
        ("sparsevlm", ["acts: between language layers", "merges tokens: yes", "signals: lm.attention, lm.embeds"]),
        ("masks", ["role: replay", "reads boxes: no"]),
        ("grid", ["role: control", "artifact profile: cells=truncated", "parity: exact-index"]),
        ("evidence_only", ["role: oracle", "reads boxes: yes"]),
        ("v2drop", ["parity: official-algorithm", "signals: lm.input"]),
        ("prunesid", ["parity: paper-algorithm", "signals: vision.cls_attention@-2, vision.hidden@-2"]),
    ],
)
def test_one_method_says_what_it_is(name: str, lines: list[str]) -> None:
    said = shown(name).splitlines()
    assert set(lines) <= set(said)


def test_a_method_without_parity_data_says_so_alone_and_in_the_list() -> None:
    assert "no parity data" in " ".join(shown("prunesid").partition("Reference")[0].split())
    assert "no parity data" not in shown("fastv")
    assert "paper-algorithm: follows what is published about the method; no parity data" in shown()


@pytest.mark.parametrize("name", SELECTORS.names())
def test_every_method_can_be_shown(name: str) -> None:
    assert shown(name).startswith(name)


def test_with_a_model_the_list_says_what_runs_there_and_why_not(data: Path) -> None:
    page = shown("--model", "qwen3_vl")
    assert re.search(r"^target +yes *$", page, re.MULTILINE)
    assert re.search(r"^visionzip +no: it needs vision\.", page, re.MULTILINE)
    assert "no class token" in page
    tiny = shown("--model", str(data / "tiny" / "llava"))
    assert re.search(r"^visionzip +yes *$", tiny, re.MULTILINE)
    assert re.search(r"^cdpruner +yes, with --clip *$", tiny, re.MULTILINE)
    assert re.search(r"^nuwa +no: signal vision", tiny, re.MULTILINE)


def test_one_method_says_whether_it_runs_on_a_model() -> None:
    assert "runs on internvl: no: it needs" in shown("visionzip", "--model", "internvl")
    assert "runs on llava: yes" in shown("visionzip", "--model", "llava")


def test_what_is_said_about_a_checkpoint_needs_no_weights(data: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((data / "tiny" / "qwen3vl" / "config.json").read_bytes())
    assert "runs on" in shown("--model", str(tmp_path))
