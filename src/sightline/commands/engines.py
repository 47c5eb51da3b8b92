"""``sightline engines``: engines that can be audited, and what OpenVINO needs to be one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from sightline.commands.options import with_options
from sightline.progress import say, waiting_for

app = typer.Typer(
    help="Engines that people ship: which can be audited, models exported for them, and which tokens they keep.",
    no_args_is_help=True,
)


@app.command("list")
def list_() -> None:
    """List the engines, and what arms of each may set: ``engine:SWITCH=VALUE``."""
    from sightline.core.registry import one_line_summary
    from sightline.core.table import print_rows
    from sightline.engines import ENGINES
    from sightline.progress import SafeConsole

    console = SafeConsole(highlight=False)
    for name, kind in ENGINES.items():
        console.print(name, style="bold", end="  ")
        console.print(one_line_summary(kind), markup=False, soft_wrap=True)
        print_rows(console, ("", ""), ((f"  {switch}", words) for switch, words in kind.switches.items()), header=False)
    for reason in ENGINES.broken().values():
        console.print(f"broken: {reason}", markup=False, soft_wrap=True)


@app.command()
@with_options
def export(
    checkpoint: Annotated[str, typer.Argument()],
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    run: bool = False,
    env: Path = Path(".venv-export"),
    weights: Literal["fp32", "fp16", "int8", "int4"] | None = None,
) -> None:
    """Export a checkpoint for OpenVINO: print the commands, or run them in an environment of their own."""
    from sightline.engines.openvino_folder import export as run_all
    from sightline.engines.openvino_folder import steps

    if run:
        run_all(checkpoint, folder, env, weights)
        say(f"exported: {folder}; `sightline engines trace {folder}` lets its kept cells be told")
        return
    for step in steps(checkpoint, folder, env, weights):
        typer.echo(shlex.join(step))


@app.command()
@with_options
def trace(folder: Annotated[Path, typer.Argument(metavar="DIR")]) -> None:
    """Make the copy of an exported model that tells which visual tokens reach the language model, as DIR/traced."""
    with waiting_for("tracing", logged=False):
        from sightline.engines.openvino_trace import trace as make

        made = make(folder)
    typer.echo(f"traced copy: {made}")
