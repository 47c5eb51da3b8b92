"""Options: flags from the fields of models, one page of help for every command, a sentence for every option."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from pydantic import BaseModel, Field
from typer.main import get_command
from typer.testing import CliRunner

from sightline.cli import COMMANDS, GROUPS, app
from sightline.commands.options import with_options
from sightline.core.flags import Flag
from tests.warm_python import run_python


class Size(BaseModel):
    width: Annotated[int, Flag(name="--wide")] = Field(description="In pixels.")
    height: int | None = Field(None, ge=1, le=9, description="In pixels.")


drawing = typer.Typer()
seen: list[tuple[Any, ...]] = []


@drawing.command()
@with_options
def draw(name: Annotated[str, typer.Argument()], size: Size, bold: bool = False) -> None:
    """Draws a name."""
    seen.append((name, size, bold))


def test_a_command_gets_the_object_with_its_other_parameters_and_its_own_help() -> None:
    assert CliRunner().invoke(drawing, ["a", "--wide", "3", "--bold"]).exit_code == 0
    assert CliRunner().invoke(drawing, ["b", "--height", "4", "--wide", "3"]).exit_code == 0
    assert seen == [("a", Size(width=3), True), ("b", Size(width=3, height=4), False)]
    beyond = [["a", "--wide", "3", "--height", size] for size in ("0", "10")]
    for arguments in (["a"], ["a", "--wide", "x"], ["a", "--size", "3"], *beyond):
        assert CliRunner().invoke(drawing, arguments).exit_code == 2
    assert len(seen) == 2
    text = CliRunner().invoke(drawing, ["--help"]).output
    assert "Draws a name." in text
    assert "--wide" in text
    assert "--size" not in text
    assert draw.__name__ == "draw"


def commands(words: tuple[str, ...], node: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    if not hasattr(node, "commands"):
        yield words, node
        return
    for name in node.list_commands(None):
        yield from commands((*words, name), node.get_command(None, name))


ALL = dict(commands((), get_command(app)))


def page(*words: str, width: int) -> str:
    return CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(width)}).output


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_pages_have_a_sentence_for_every_option_and_nothing_is_cut_at_80_columns(words: tuple[str, ...]) -> None:
    whole, narrow = page(*words, width=200), page(*words, width=80)
    assert "Show this message and exit." in whole
    assert "<bool>" not in whole
    assert not re.search(r"<(list|object)", whole), "a type in Python's words"
    for option in ALL[words].params:
        if option.param_type_name == "option" and not option.hidden:
            assert option.help, option.opts
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80


def test_all_commands_stand_with_their_first_sentences_in_a_panel_for_each_purpose() -> None:
    tree: Any = get_command(app)
    assert tree.list_commands(None) == list(COMMANDS)
    for name, sentence in COMMANDS.items():
        said = tree.get_command(None, name).help
        assert " ".join(said.split("\n\n")[0].split()) == sentence
    panels = dict(re.findall(r"^╭─ ([\w ]+?) ─+╮\n(.*?)^╰", page(width=80), re.DOTALL | re.MULTILINE))
    listed = {title: re.findall(r"^│ ([a-z-]+) ", text, re.MULTILINE) for title, text in panels.items()}
    assert listed.pop("Options") == ["--debug", "--version", "--help"]
    assert listed == {title: list(group) for title, group in GROUPS.items()}


def test_many_options_stand_in_panels_and_the_gate_says_where_metrics_are_listed() -> None:
    for words in (("run",), ("doctor",), ("ask",), ("bench", "select"), ("bench", "ttft")):
        assert page(*words, width=120).count("╭─") >= 2, words
    assert "sightline list metrics" in page("gate", width=200)


ONE_NAME = {"--open": r"^Open the (page in a browser|viewer)\.", "--limit": r"\b[Ii]mages\b|\bpages\b"}
"""Option -> what its help says wherever it stands."""
SECOND_NAMES = {"--pages", "--limit-images", "--browser"}
WRITES = re.compile(r"\b(to write|Write|Append|[Ff]ile for|Cost card: JSON|Table with|with every sample)\b")


def said() -> list[tuple[tuple[str, ...], str, str]]:
    """(command, option, its help) of all."""
    return [
        (words, name, getattr(option, "help", None) or "")
        for words, command in ALL.items()
        for option in command.params
        for name in (*option.opts, *option.secondary_opts)
    ]


def test_an_option_means_the_same_wherever_it_stands() -> None:
    for wanted, sentence in ONE_NAME.items():
        alike = [line for line in said() if line[1] == wanted]
        assert len(alike) > 2
        assert [line for line in alike if not re.search(sentence, line[2])] == []
    assert [line for line in said() if line[1] in SECOND_NAMES] == []


def test_every_option_that_names_a_file_to_write_says_what_a_dash_is() -> None:
    """So that a new one is not forgotten: whatever names a file to write is made by one function."""
    written = [line for line in said() if WRITES.search(line[2])]
    assert len(written) > 10
    assert [line for line in written if not re.search("older|into|- is standard output", line[2])] == []


def test_flags_of_all_commands_come_from_one_generator() -> None:
    """Two of the whole program apart, which stand before any command."""
    of_program = {"cli.py": 2, "options.py": 1}
    sources = [file for folder in ("src", "packages") for file in (Path(__file__).parents[3] / folder).rglob("*.py")]
    made = {file.name: file.read_text(encoding="utf-8").count("typer.Option(") for file in sources}
    assert {name: count for name, count in made.items() if count} == of_program


def test_only_the_module_of_the_command_asked_for_is_imported() -> None:
    code = (
        "import sys; from sightline.cli import app; app(WORDS, standalone_mode=False)\n"
        "print(*sorted(name for name in sys.modules if name.startswith('sightline.commands.')))"
    )
    for words, modules in ((["--help"], []), (["rows", "--help"], ["rows"])):
        done = run_python(["-c", code.replace("WORDS", repr(words))])
        assert done.returncode == 0, done.stderr
        known = {f"sightline.commands.{name}" for name in ("options", *modules)}
        assert set(done.stdout.splitlines()[-1].split()) == known
