"""``sightline run``, ``rows``, ``selectors`` and ``backbones``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sightline.auditing.config import read_config
from sightline.commands.from_config import overrides, takes_config
from sightline.errors import SightlineError


@takes_config
def run(
    config: Annotated[Path | None, typer.Option(help="YAML file with any of the options below; flags win.")] = None,
    **given: Any,
) -> None:
    """Audit arms on a probe set. Kill it at any moment and run the same command again: finished shards are kept."""
    settings = read_config(config, overrides(given))
    from sightline.auditing.audit import audit
    from sightline.commands.tables import print_summary

    finished = audit(settings)
    print_summary(finished)


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

    table = load_run(folder).rows
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
        from sightline.store.folder import write_whole

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
        console.print(inspect.getdoc(kind) or "", markup=False)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("selector", "idea", "parity", "arguments"):
        table.add_column(column, overflow="fold")
    for known in SELECTORS:
        kind = SELECTORS.get(known)
        idea = (inspect.getdoc(kind) or "").splitlines()[0]
        table.add_row(known, idea, kind.parity, parameters(kind))
    console.print(table)


def backbones(name: Annotated[str | None, typer.Argument(help="Show one architecture alone.")] = None) -> None:
    """List the architectures: position policy, and what ``--image-option`` takes for each."""
    import inspect

    from rich.console import Console
    from rich.table import Table

    from sightline.backbones import BACKBONES

    console = Console(highlight=False)
    for known in BACKBONES if name is None else [name]:
        kind = BACKBONES.get(known)
        about = inspect.getdoc(inspect.getmodule(kind)) or inspect.getdoc(kind) or ""
        console.print(f"[bold]{known}[/]  positions: {kind.paper_positions}")
        console.print(about.partition("\n")[0], markup=False)
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        for option, sentence in kind.image_options.described().items():
            published = kind.image_options.artifact.get(option)
            table.add_row(option, sentence, "" if published is None else f"artifact: {json.dumps(published)}")
        console.print(table)
