"""What is printed on a terminal: one line, printable, short; names and answers are shown, never obeyed."""

import io
import pickle

import pytest
from rich.table import Table

from sightline.errors import LONGEST_MESSAGE, SightlineError, first_line, named_line, printable
from sightline.progress import SafeConsole, say, waiting_for

SHOWN = {
    "target:0.3": "target:0.3",
    "café “total” ≥ 0.5": "café “total” ≥ 0.5",
    "a\nb\r\tc": r"a\nb\r\tc",
    "\x1b[2J\x07gone": r"\x1b[2J\x07gone",
    "\x9b31m": r"\x9b31m",
    "one\u2028two\u2029three\x85": r"one\u2028two\u2029three\x85",
    "half \ud800 a pair": r"half \ud800 a pair",
    "file\u202egnp.exe": r"file\u202egnp.exe",
}


def test_what_a_terminal_would_obey_is_written_out() -> None:
    for given, shown in SHOWN.items():
        assert printable(given) == shown
        assert str(SightlineError(f"name {given} is odd")) == f"name {shown} is odd"


def test_a_long_quotation_loses_its_middle_lines_may_be_kept_and_errors_pickled() -> None:
    message = str(SightlineError(f"unknown key '{'x' * 100_000}' in config.yaml"))
    assert len(message) < LONGEST_MESSAGE + 20
    assert message.startswith("unknown key 'xxx")
    assert message.endswith("xxx' in config.yaml")
    assert printable("one\ntwo\x1b", keep="\n") == "one\ntwo\\x1b"
    assert str(pickle.loads(pickle.dumps(SightlineError("a\nb")))) == r"a\nb"


@pytest.mark.parametrize(
    ("error", "line", "named"),
    [
        (ValueError("shapes do not match\nat all"), "shapes do not match", "ValueError: shapes do not match"),
        (ValueError("\n  "), "ValueError", "ValueError"),
        (SystemExit(), "SystemExit", "SystemExit"),
        (KeyError("place"), "'place'", "KeyError: 'place'"),
    ],
)
def test_an_error_of_somebody_else_is_one_line(error: BaseException, line: str, named: str) -> None:
    assert (first_line(error), named_line(error)) == (line, named)


HOSTILE = "\x1b[2K\x1b[1Aerased [bold]loud[/] [/]"


def on_a_terminal(thing: object) -> str:
    sink = io.StringIO()
    SafeConsole(file=sink, force_terminal=True, width=200, color_system="standard", highlight=False).print(thing)
    return sink.getvalue()


def test_tables_lines_and_names_are_shown_and_never_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(title=HOSTILE)
    table.add_column("arm", style="red")
    table.add_row(HOSTILE)
    shown = on_a_terminal(table)
    assert "\x1b[2K" not in shown
    assert shown.count(r"\x1b[2K\x1b[1Aerased [bold]") == 2
    assert "\x1b[31m" in shown, "its own colours are sent"
    assert on_a_terminal(HOSTILE).strip() == r"\x1b[2K\x1b[1Aerased [bold]loud[/] [/]"
    say(f"one\n{HOSTILE}", err=True)
    assert capsys.readouterr().err == "one\n\\x1b[2K\\x1b[1Aerased [bold]loud[/] [/]\n"
    with waiting_for(f"loading {HOSTILE}"):
        pass
    assert "\x1b" not in capsys.readouterr().err
