"""``sightline run`` and ``rows``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sightline.auditing.config import read_config
from sightline.commands.from_config import overrides, takes_config
from sightline.commands.path_or_url import RunArgument
from sightline.errors import SightlineError
from sightline.progress import waiting_for


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
    folder: RunArgument,
    format: Annotated[Literal["csv", "jsonl", "parquet"], typer.Option(help="Output format.")] = "csv",
    out: Annotated[Path | None, typer.Option(help="File to write; standard output if left out.")] = None,
) -> None:
    """Export the rows of a run. Masks are written as base64 in csv and jsonl."""
    import base64
    import io

    import pyarrow.parquet as pq

    from sightline.store import load_run
    from sightline.store.whole_files import refuse_unusable_place, write_whole

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
