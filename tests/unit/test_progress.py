"""What is printed on a terminal: names and answers are shown, never obeyed."""

from __future__ import annotations

import io

import pytest
from rich.table import Table

from sightline.progress import SafeConsole, say, waiting_for

HOSTILE = "\x1b[2K\x1b[1Aerased [bold]loud[/] [/]"


def on_a_terminal(thing: object) -> str:
    sink = io.StringIO()
    SafeConsole(file=sink, force_terminal=True, width=200, color_system="standard", highlight=False).print(thing)
    return sink.getvalue()


def test_a_table_shows_control_sequences_and_square_brackets() -> None:
    table = Table(title=HOSTILE)
    table.add_column("arm", style="red")
    table.add_row(HOSTILE)
    shown = on_a_terminal(table)
    assert "\x1b[2K" not in shown
    assert shown.count(r"\x1b[2K\x1b[1Aerased [bold]") == 2
    assert "\x1b[31m" in shown, "its own colours are sent"


def test_a_line_is_no_markup() -> None:
    assert on_a_terminal(HOSTILE).strip() == r"\x1b[2K\x1b[1Aerased [bold]loud[/] [/]"


def test_said_lines_keep_their_line_ends_alone(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"one\n{HOSTILE}", err=True)
    assert capsys.readouterr().err == "one\n\\x1b[2K\\x1b[1Aerased [bold]loud[/] [/]\n"


def test_what_is_waited_for_may_have_any_name(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting_for(f"loading {HOSTILE}"):
        pass
    assert "\x1b" not in capsys.readouterr().err
