"""``sightline engines``: engines that can be audited, and what OpenVINO needs to be one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

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
def export(
    checkpoint: Annotated[str, typer.Argument(help="Checkpoint folder or hub id.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder for the exported model.")],
    run: Annotated[bool, typer.Option("--run", help="Run the commands instead of printing them.")] = False,
    env: Annotated[
        Path, typer.Option("--env", help="Folder of the exporter's own environment; made where it is none.")
    ] = Path(".venv-export"),
    weights: Annotated[
        Literal["fp32", "fp16", "int8", "int4"] | None,
        typer.Option(help="Precision of the weights; the exporter takes 8 bits beyond a billion if left out."),
    ] = None,
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
def trace(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of an exported model.")]) -> None:
    """Make the copy of an exported model that tells which visual tokens reach the language model, as DIR/traced."""
    with waiting_for("tracing", logged=False):
        from sightline.engines.openvino_trace import trace as make

        made = make(folder)
    typer.echo(f"traced copy: {made}")
