"""sightline selectors and list: everything that can be named, with its idea, where it runs, and whose mistake it is."""

import re
from pathlib import Path

import pytest

from sightline.commands.methods import KINDS, registry_of
from sightline.core.registry import idea_of
from sightline.selectors import SELECTORS
from tests.command_line import sightline
from tests.refusals import Refused
from tests.warm_python import run_python


def shown(*arguments: object) -> str:
    return sightline("selectors", *arguments).output


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
        ("prunesid", ["parity: official-algorithm", "signals: vision.cls_attention@-2, vision.hidden@-2"]),
    ],
)
def test_one_method_says_what_it_is(name: str, lines: list[str]) -> None:
    said = shown(name).splitlines()
    assert set(lines) <= set(said)


def test_every_method_can_be_shown_and_one_without_parity_data_says_so_alone_and_in_the_list() -> None:
    for name, kind in SELECTORS.items():
        page = shown(name)
        assert page.startswith(name)
        assert ("no parity data" in " ".join(page.split())) is (kind.parity == "paper-algorithm"), name
    assert "paper-algorithm: follows what is published about the method; no parity data" in shown()


def test_with_a_model_the_list_and_one_method_say_what_runs_there_and_why_not(data: Path, tmp_path: Path) -> None:
    page = shown("--model", "qwen3_vl")
    assert re.search(r"^target +yes *$", page, re.MULTILINE)
    assert re.search(r"^scope +no: it needs vision\.", page, re.MULTILINE)
    assert re.search(r"^visionzip +yes, in another form *$", page, re.MULTILINE)
    assert "no class token" in page
    tiny = shown("--model", str(data / "tiny" / "llava"))
    assert re.search(r"^visionzip +yes *$", tiny, re.MULTILINE)
    assert re.search(r"^cdpruner +yes, with --clip *$", tiny, re.MULTILINE)
    assert re.search(r"^nuwa +no: signal vision", tiny, re.MULTILINE)
    assert "runs on internvl: no: it needs" in shown("prumerge", "--model", "internvl")
    assert "runs on llava: yes" in shown("visionzip", "--model", "llava")
    (tmp_path / "config.json").write_bytes((data / "tiny" / "qwen3vl" / "config.json").read_bytes())
    assert "runs on" in shown("--model", str(tmp_path)), "that needs no weights"


@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_of_a_kind_is_listed_with_its_idea(kind: str) -> None:
    done = sightline("list", kind, width=250)
    entries = dict(registry_of(kind).items())
    assert entries
    for name, entry in entries.items():
        line = next(line for line in done.output.splitlines() if line.split()[:1] == [name])
        assert idea_of(entry)[:60] in line


def test_no_registry_of_the_package_is_left_out() -> None:
    code = (
        "import sys; sys.path.insert(0, 'docs')\n"
        "from registry_homes import homes\n"
        "from sightline.commands.methods import KINDS, registry_of\n"
        "missing = {home.registry.kind for home in homes()} - {registry_of(kind).kind for kind in KINDS}\n"
        "assert not missing, missing\n"
    )
    done = run_python(["-c", code])
    assert done.returncode == 0, done.stderr


def test_an_unknown_kind_is_refused_with_the_known_ones(refused: Refused) -> None:
    refused("unknown kind 'colours'; choose one of selectors", sightline, "list", "colours")
