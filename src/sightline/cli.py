"""The ``sightline`` command: parses, calls, prints. Nothing here imports torch; commands do so when they run."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tomllib
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand

from sightline.commands.options import Commands
from sightline.errors import SightlineError, printable
from sightline.version import __version__

# Arrow reads it when it is first imported. Its own allocators keep what thousands of small files were read into; the
# system's gives that back: a third less memory and time over some millions of rows.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

GROUPS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""What one wants to do -> command or group of commands -> the first sentence of its help."""
COMMANDS = {name: sentence for group in GROUPS.values() for name, sentence in group.items()}
OWN = "sightline.commands"
MODULES = {
    f"{OWN}.audit": {"audit": "audit", "demo": "demo"},
    f"{OWN}.run": {"run": "run"},
    f"{OWN}.rows": {"rows": "rows", "verify": "verify", "compact": "compact", "show": "show", "masks": "masks"},
    f"{OWN}.methods": {"selectors": "selectors", "backbones": "backbones", "list": "list_"},
    f"{OWN}.checkpoint": {"doctor": "doctor", "matrix": "matrix", "ask": "ask", "convert": "convert"},
    f"{OWN}.report": {"report": "report", "compare": "compare", "gate": "gate", "view": "view"},
    f"{OWN}.new_package": {"new-selector": "new_selector", "new-backbone": "new_backbone"},
    **{f"{OWN}.{group}": {group: "app"} for group in ("probes", "controls", "bench", "engines", "policy")},
    "sightline_annotate.commands": {"annotate": "app"},
    "sightline_leaderboard.commands": {"leaderboard": "leaderboard"},
    "sightline_paper.commands": {"paper": "app"},
}
"""Where they stand: module -> command -> its function, or the ``typer.Typer`` of a group. What lies outside of this
package is known here by its name alone."""


class CommandsByName(Commands):
    """Imports the module of a command when that is asked for; the page that lists all of them needs none."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.commands = {
            name: TyperCommand(name, help=sentence, rich_help_panel=panel)
            for panel, group in GROUPS.items()
            for name, sentence in group.items()
        }
        self._imported: set[str] = set()
        self._listed = False

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listed = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listed = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and cmd_name not in self._imported and not self._listed:
            self.commands[cmd_name] = _imported(cmd_name)
            self._imported.add(cmd_name)
        return super().get_command(ctx, cmd_name)


def _imported(name: str) -> Any:
    module, known = next((module, known) for module, known in MODULES.items() if name in known)
    found = getattr(importlib.import_module(module), known[name])
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
    else:
        single = typer.Typer(add_completion=False)
        single.command(name)(found)
        command = typer.main.get_command(single)
    command.name = name
    return command


app = typer.Typer(
    name="sightline",
    cls=CommandsByName,
    help="Audit visual-token pruning: does the answer survive, and do the cells that support it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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


RESUMED = ("audit", "run", "demo", "leaderboard")
"""Commands that go on where they stopped."""
INTERRUPTED, TERMINATED = 130, 143
"""Exit codes after Ctrl-C and SIGTERM, as shells expect them."""


class Terminated(BaseException):
    """SIGTERM arrived. No ``except Exception`` on the way may hold it up."""


def _terminate(number: int, frame: Any) -> NoReturn:
    raise Terminated


def main(program: Callable[[], object] = app) -> None:
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
        from sightline.device.work import in_words

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
