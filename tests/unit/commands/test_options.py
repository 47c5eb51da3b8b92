"""Options: flags from the fields of models, one page of help for every command, a sentence for every option."""

import re
from collections.abc import Iterator
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


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""

    def below(words: tuple[str, ...], node: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        if not hasattr(node, "commands"):
            yield words, node
            return
        for name in node.list_commands(None):
            yield from below((*words, name), node.get_command(None, name))

    yield from below((), get_command(app))


ALL = dict(commands())


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_pages_have_a_sentence_for_every_option_and_no_type_behind_a_flag(words: tuple[str, ...]) -> None:
    page = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"}).output
    assert "Show this message and exit." in page
    assert "<bool>" not in page
    assert "<list[" not in page.partition("─ Options")[2]
    for option in ALL[words].params:
        if option.param_type_name == "option" and not option.hidden:
            assert option.help, option.opts


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_nothing_on_a_page_is_cut_at_80_columns(words: tuple[str, ...]) -> None:
    page = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"}).output
    assert "…" not in page
    assert max(map(len, page.splitlines())) <= 80


def test_the_page_of_all_commands_has_their_first_sentences_in_a_panel_for_each_purpose() -> None:
    tree: Any = get_command(app)
    assert tree.list_commands(None) == list(COMMANDS)
    for name, sentence in COMMANDS.items():
        said = tree.get_command(None, name).help
        assert " ".join(said.split("\n\n")[0].split()) == sentence
    page = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    panels = dict(re.findall(r"^╭─ ([\w ]+?) ─+╮\n(.*?)^╰", page, re.DOTALL | re.MULTILINE))
    listed = {title: re.findall(r"^│ ([a-z-]+) ", text, re.MULTILINE) for title, text in panels.items()}
    assert listed.pop("Options") == ["--debug", "--version", "--help"]
    assert listed == {title: list(group) for title, group in GROUPS.items()}


ONE_NAME = {"--open": r"^Open the (page in a browser|viewer)\.", "--limit": r"\b[Ii]mages\b|\bpages\b"}
"""Option -> what its help says wherever it stands."""
SECOND_NAMES = {"--pages", "--limit-images", "--browser"}


@pytest.mark.parametrize("name", ONE_NAME)
def test_an_option_means_the_same_wherever_it_stands(name: str) -> None:
    said = {
        " ".join(words): option.help
        for words, command in ALL.items()
        for option in command.params
        if name in (*option.opts, *option.secondary_opts)
    }
    assert len(said) > 2
    assert not [words for words, command in ALL.items() for option in command.params if SECOND_NAMES & {*option.opts}]
    assert {words: text for words, text in said.items() if not re.search(ONE_NAME[name], text)} == {}


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


def test_many_options_stand_in_panels_and_the_gate_says_where_metrics_are_listed() -> None:
    for words in (("run",), ("doctor",), ("ask",), ("bench", "select"), ("bench", "ttft")):
        page = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "120"}).output
        assert page.count("╭─") >= 2, words
    page = CliRunner().invoke(app, ["gate", "--help"], env={"COLUMNS": "200"}).output
    assert "sightline list metrics" in page
