"""Pages of help: every option of every command says what it is, and a type stands only where a value is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from sightline.cli import app


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""

    def below(words: tuple[str, ...], node: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        children = getattr(node, "commands", None)
        if children is None:
            yield words, node
            return
        for name in node.list_commands(None):
            yield from below((*words, name), node.commands[name])

    yield from below((), get_command(app))


ALL = dict(commands())


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_no_page_shows_a_type_behind_a_flag_or_the_python_name_of_a_list(words: tuple[str, ...]) -> None:
    page = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"}).output
    assert "Show this message and exit." in page
    options = page.partition("─ Options")[2]
    assert "<bool>" not in page
    assert "<list[" not in options


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_option_that_is_shown_has_a_sentence(words: tuple[str, ...]) -> None:
    for option in ALL[words].params:
        if option.param_type_name == "option" and not option.hidden:
            assert option.help, option.opts


def test_many_options_stand_in_panels() -> None:
    for words in (("run",), ("doctor",), ("ask",), ("bench", "select"), ("bench", "ttft")):
        page = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "120"}).output
        assert page.count("╭─") >= 2, words


def test_the_gate_says_where_metrics_are_listed() -> None:
    page = CliRunner().invoke(app, ["gate", "--help"], env={"COLUMNS": "200"}).output
    assert "sightline list metrics" in page
