"""``sightline run``, ``rows``, ``selectors`` and ``backbones``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sightline.auditing.config import read_config
from sightline.commands.from_config import overrides, takes_config
from sightline.errors import SightlineError
from sightline.progress import waiting_for

if TYPE_CHECKING:
    from sightline.core.selection import Method


@takes_config
def run(
    config: Annotated[Path | None, typer.Option(help="YAML file with any of the options below; flags win.")] = None,
    **given: Any,
) -> None:
    """Audit arms on a probe set. Kill it at any moment and run the same command again: finished shards are kept.

    Exit code 0: finished; 1: finished but for images that could not be read; 2: error.
    """
    with waiting_for("starting", logged=False):
        settings = read_config(config, overrides(given))
        from sightline.auditing.audit import audit
        from sightline.commands.run_summary import print_summary

    finished = audit(settings)
    print_summary(finished)
    if finished.bad_images and not settings.skip_bad_images:
        raise typer.Exit(1)


def rows(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    format: Annotated[Literal["csv", "jsonl", "parquet"], typer.Option(help="Output format.")] = "csv",
    out: Annotated[Path | None, typer.Option(help="File to write; standard output if left out.")] = None,
) -> None:
    """Export the rows of a run. Masks are written as base64 in csv and jsonl."""
    import base64
    import io

    import pyarrow.parquet as pq

    from sightline.store import load_run
    from sightline.store.folder import refuse_unusable_place, write_whole

    if out is not None:
        refuse_unusable_place(out.parent)
    run = load_run(folder)
    if run.unfinished:
        typer.echo(f"note: {folder}: {run.unfinished}", err=True)
    table = run.rows
    buffer = io.BytesIO()
    if format == "parquet":
        pq.write_table(table, buffer)
    else:
        frame = table.to_pandas()
        for column in ("kept_mask", "lineage_mask"):
            frame[column] = [None if v is None else base64.b64encode(v).decode() for v in frame[column]]
        if format == "csv":
            frame.to_csv(buffer, index=False)
        else:
            frame.to_json(buffer, orient="records", lines=True, force_ascii=False)
    if out is not None:
        write_whole(out, buffer.getvalue())
    elif format == "parquet" and sys.stdout.isatty():
        raise SightlineError("parquet is binary: name a file with --out")
    else:
        sys.stdout.buffer.write(buffer.getvalue())


def selectors(name: Annotated[str | None, typer.Argument(help="Show one selector in full.")] = None) -> None:
    """List the pruning methods: one line each, or one in full."""
    import inspect

    from rich.console import Console
    from rich.table import Table

    from sightline.arms.arm import parameters
    from sightline.selectors import SELECTORS

    console = Console()
    if name is not None:
        kind: Any = SELECTORS.get(name)
        console.print(f"[bold]{name}[/]  arguments: {parameters(kind) or 'none'}")
        console.print("\n".join(f"{trait}: {value}" for trait, value in traits(kind).items()), markup=False)
        console.print(f"\n{inspect.getdoc(kind) or ''}", markup=False)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("selector", "idea", "parity", "arguments"):
        table.add_column(column, overflow="fold")
    for known, kind in SELECTORS.items():
        idea = (inspect.getdoc(kind) or "").partition("\n")[0]
        table.add_row(known, idea, kind.parity, parameters(kind))
    console.print(table)
    for reason in SELECTORS.broken().values():
        console.print(f"broken: {reason}", markup=False, highlight=False, soft_wrap=True)


def backbones(name: Annotated[str | None, typer.Argument(help="Show one architecture alone.")] = None) -> None:
    """List the architectures: position policy, and what ``--image-option`` takes for each."""
    import inspect

    from rich.console import Console
    from rich.table import Table

    from sightline.backbones import BACKBONES

    console = Console(highlight=False)
    for known, kind in BACKBONES.items() if name is None else [(name, BACKBONES.get(name))]:
        about = inspect.getdoc(inspect.getmodule(kind)) or inspect.getdoc(kind) or ""
        console.print(f"[bold]{known}[/]  positions: {kind.paper_positions}")
        console.print(about.partition("\n")[0], markup=False)
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        for option, sentence in kind.image_options.described().items():
            published = kind.image_options.artifact.get(option)
            table.add_row(option, sentence, "" if published is None else f"artifact: {json.dumps(published)}")
        console.print(table)
    for reason in BACKBONES.broken().values() if name is None else ():
        console.print(f"broken: {reason}", markup=False, soft_wrap=True)


def traits(kind: type[Method]) -> dict[str, str]:
    """What a method says about itself, in words; what depends on arguments, for their defaults."""
    import inspect

    from sightline.core.selection import Method

    word = {True: "yes", False: "no", None: "its class does not say"}
    # Made without its arguments: a field's default is a class attribute, and one without default has no say in this.
    bare = object.__new__(kind)
    declared = inspect.getattr_static(kind, "reads_boxes")
    varies = isinstance(declared, property) and declared is not inspect.getattr_static(Method, "reads_boxes")
    described = {
        "role": kind.role,
        "acts": "between language layers" if kind.inside else "before the language model",
        "merges tokens": word[kind.merges],
        "reads boxes": word[bare.reads_boxes] + (", unless its arguments say so" if varies else ""),
        "parity": kind.parity,
        "signals": ", ".join(sorted(bare.needs)) or "none",
    }
    for model_type, arguments in kind.artifact.items():
        where = "artifact profile" if model_type == "*" else f"artifact profile, {model_type}"
        described[where] = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return described
