"""sightline selectors and list: everything that can be named, with its idea, where it runs, and whose mistake it is."""

import re
from pathlib import Path

from sightline.commands.methods import KINDS, registry_of
from sightline.core.registry import one_line_summary
from sightline.selectors import SELECTORS
from tests.command_line import sightline
from tests.refusals import Refused
from tests.warm_python import run_python


def shown(*arguments: object) -> str:
    return sightline("selectors", *arguments).output


def test_a_broken_plug_in_is_listed_with_the_reason_in_one_line() -> None:
    SELECTORS.names()
    SELECTORS.add("broken_plug_in", "no_such_module_anywhere:Thing")
    lines = shown().splitlines()
    del SELECTORS._entries["broken_plug_in"], SELECTORS._refused["broken_plug_in"]
    (line,) = [line for line in lines if "broken_plug_in" in line]
    assert line.startswith("broken: selector 'broken_plug_in' cannot be loaded (ModuleNotFoundError")
    assert any(line.startswith("visionzip_qwen") for line in lines)


SAYS = {
    "full": ["role: reference", "merges tokens: no", "reads boxes: no", "signals: none"],
    "target": ["role: method", "reads boxes: no, unless its arguments say so", "acts: before the language model"],
    "protected": ["reads boxes: yes", "artifact profile, llava: score=prompt"],
    "sparsevlm": ["acts: between language layers", "merges tokens: yes", "signals: lm.attention, lm.embeds"],
    "masks": ["role: replay", "reads boxes: no"],
    "grid": ["role: control", "artifact profile: cells=truncated", "parity: exact-index"],
    "evidence_only": ["role: oracle", "reads boxes: yes"],
    "v2drop": ["parity: official-algorithm", "signals: lm.input"],
    "prunesid": ["parity: official-algorithm", "signals: vision.cls_attention@-2, vision.hidden@-2"],
}


def test_every_method_says_what_it_is_and_one_without_parity_data_says_so_alone_and_in_the_list() -> None:
    for name, kind in SELECTORS.items():
        page = shown(name)
        assert page.startswith(name)
        assert set(SAYS.get(name, [])) <= set(page.splitlines()), name
        assert ("no parity data" in " ".join(page.split())) is (kind.parity == "paper-algorithm"), name
    assert "paper-algorithm: follows what is published about the method; no parity data" in shown()
    assert set(SAYS) <= set(SELECTORS)


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


def test_no_registry_is_left_out_and_every_entry_is_listed_with_its_idea(refused: Refused) -> None:
    for kind in KINDS:
        lines = sightline("list", kind, width=250).output.splitlines()
        entries = dict(registry_of(kind).items())
        assert entries
        for name, entry in entries.items():
            line = next(line for line in lines if line.split()[:1] == [name])
            assert one_line_summary(entry)[:60] in line
    refused("unknown kind 'colours'; choose one of selectors", sightline, "list", "colours")
    code = (
        "import sys; sys.path.insert(0, 'docs')\n"
        "from registry_homes import homes\n"
        "from sightline.commands.methods import KINDS, registry_of\n"
        "missing = {home.registry.kind for home in homes()} - {registry_of(kind).kind for kind in KINDS}\n"
        "assert not missing, missing\n"
    )
    done = run_python(["-c", code])
    assert done.returncode == 0, done.stderr
