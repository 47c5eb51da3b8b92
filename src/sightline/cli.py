"""The ``sightline`` command: parses, calls, prints. Nothing here imports torch; commands do so when they run."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from io import TextIOWrapper
from typing import Any, NoReturn

import typer

from sightline.commands.options import Commands
from sightline.errors import SightlineError, printable
from sightline.version import __version__

# Arrow reads it when it is first imported. Its own allocators keep what thousands of small files were read into; the
# system's gives that back: a third less memory and time over some millions of rows.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

app = typer.Typer(
    name="sightline",
    cls=Commands,
    help="Audit visual-token pruning: does the answer survive, and do the cells that support it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_GROUPS = ("probes", "controls", "annotate", "masks", "bench", "paper", "policy")
"""Sub-command groups: ``sightline.commands.<name>`` with an ``app``."""
_COMMANDS = {
    "leaderboard": ("demo", "leaderboard"),
    "run": ("run",),
    "rows": ("rows", "verify", "compact"),
    "methods": ("selectors", "backbones", "convert", "list_"),
    "report": ("report", "compare", "gate", "view"),
    "show": ("show",),
    "check": ("doctor", "ask"),
    "agreement": ("agreement",),
    "new_package": ("new_selector", "new_backbone"),
}
"""Single commands: module of ``sightline.commands`` -> its functions."""


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"sightline {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    debug: bool = typer.Option(False, "--debug", help="Show the full traceback of an error."),
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_print_version, help="Print the version and stop."
    ),
) -> None:
    """Options before the command."""


def _assemble() -> None:
    for group in _GROUPS:
        module = importlib.import_module(f"sightline.commands.{group}")
        app.add_typer(module.app, name=group)
    for name, functions in _COMMANDS.items():
        module = importlib.import_module(f"sightline.commands.{name}")
        for function in functions:
            app.command(name=function.rstrip("_").replace("_", "-"))(getattr(module, function))


_assemble()


RESUMED = ("run", "demo", "leaderboard")
"""Commands that go on where they stopped."""
INTERRUPTED, TERMINATED = 130, 143
"""Exit codes after Ctrl-C and SIGTERM, as shells expect them."""


class Terminated(BaseException):
    """SIGTERM arrived. No ``except Exception`` on the way may hold it up."""


def _terminate(number: int, frame: Any) -> NoReturn:
    raise Terminated


def main(program: typer.Typer = app) -> None:
    """Entry point. A SightlineError, or memory that ran out, is one line on stderr; anything else is a bug."""
    signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal of few characters shows the others as escapes
            stream.reconfigure(errors="backslashreplace")
    try:
        program()
    except SightlineError as error:
        if "--debug" in sys.argv:
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except (RuntimeError, MemoryError) as error:
        from sightline.device.memory import in_words

        line = in_words(error)
        if line is None or "--debug" in sys.argv:
            raise
        print(f"error: {printable(line)}", file=sys.stderr)
        sys.exit(2)
    except Terminated:
        _say_stopped("terminated")
        sys.exit(TERMINATED)
    except KeyboardInterrupt:
        _say_stopped("interrupted")
        sys.exit(INTERRUPTED)
    except SystemExit as stopped:
        if stopped.code == INTERRUPTED:  # typer's way of saying that Ctrl-C was pressed
            _say_stopped("interrupted")
        raise


def _say_stopped(how: str) -> None:
    """One line, with how to go on where a command can."""
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    way_on = "; finished shards are kept, run the same command to go on" if command in RESUMED else ""
    print(f"\n{how}{way_on}", file=sys.stderr)
