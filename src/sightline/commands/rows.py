"""``sightline rows``: the rows of a run as one table, streamed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer

from sightline.commands.path_or_url import place_argument
from sightline.commands.run_places import AsOneOption, as_one_run
from sightline.errors import SightlineError
from sightline.places import Place

if TYPE_CHECKING:
    import pyarrow as pa


def rows(
    folders: Annotated[list[Place], place_argument("RUN...", "Run folder, a path or a URL; several with --as-one.")],
    format: Annotated[Literal["csv", "jsonl", "parquet"], typer.Option(help="Output format.")] = "csv",
    out: Annotated[Path | None, typer.Option(help="File to write; standard output if left out.")] = None,
    columns: Annotated[
        str | None, typer.Option(help="Only these, in this order: probe_id,arm,ecr. All if left out.")
    ] = None,
    arm: Annotated[list[str] | None, typer.Option(help="Only this arm, as run.json spells it. Repeatable.")] = None,
    as_one: AsOneOption = False,
) -> None:
    """Export the rows of a run, in bounded memory. Masks are written as base64 in csv and jsonl.

    In csv a text that a spreadsheet would take for a formula (it begins with =, +, -, @, a tab or a carriage return)
    gets an apostrophe in front; jsonl and parquet have it as it is.
    """
    from sightline.store import load_run
    from sightline.store.whole_files import refuse_unusable_place, whole_file

    if out is not None:
        refuse_unusable_place(out.parent)
    elif format == "parquet" and sys.stdout.isatty():
        raise SightlineError("parquet is binary: name a file with --out")
    run = load_run(as_one_run(folders, as_one=as_one))
    wanted = None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]
    if run.unfinished:
        typer.echo(f"note: {run.path}: {run.unfinished}", err=True)
    names = wanted if wanted is not None else run.columns
    batches = run.scan(wanted, arm or None)
    place: AbstractContextManager[BinaryIO] = nullcontext(sys.stdout.buffer) if out is None else whole_file(out)
    with place as handle:
        WRITERS[format](handle, names, batches)


def _write_csv(handle: BinaryIO, names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
    from sightline.store.row_text import csv_header, csv_lines

    handle.write(csv_header(list(names)))
    for batch in batches:
        handle.write(csv_lines(batch))


def _write_jsonl(handle: BinaryIO, names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
    from sightline.store.row_text import json_lines

    for batch in batches:
        handle.write(json_lines(batch))


def _write_parquet(handle: BinaryIO, names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from sightline.core.row import row_schema

    writer = None
    for batch in batches:
        writer = writer or pq.ParquetWriter(handle, batch.schema)
        writer.write_batch(batch)
    if writer is None:  # no row at all
        known = row_schema()
        fields = [known.field(name) for name in names if name in known.names]
        writer = pq.ParquetWriter(handle, pa.schema(fields))
    writer.close()


WRITERS: dict[str, Callable[[BinaryIO, Sequence[str], Iterable[pa.RecordBatch]], None]] = {
    "csv": _write_csv,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
}
