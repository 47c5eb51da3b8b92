"""``sightline rows``: the rows of a run as one table, streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer

from sightline.commands.options import AsOneOption, as_one_run, file_option, place_argument
from sightline.errors import SightlineError
from sightline.places import Place, place
from sightline.places.writing import STANDARD_OUTPUT, is_replaced, refuse_binary_on_terminal, whole_file

if TYPE_CHECKING:
    import pyarrow as pa


def rows(
    folders: Annotated[list[Place], place_argument("RUN...", "Run folder, a path or a URL; several with --as-one.")],
    format: Annotated[
        Literal["csv", "jsonl", "parquet"] | None,
        typer.Option(help="Output format.", show_default="the ending of --out, else csv"),
    ] = None,
    out: Annotated[Path, file_option("File to write: .csv, .jsonl or .parquet.")] = Path(STANDARD_OUTPUT),
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
    from sightline.rows import load_run

    written = _format(out, format)
    if written == "parquet":
        refuse_binary_on_terminal(out, "parquet")
    run = load_run(as_one_run(folders, as_one=as_one))
    wanted = None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]
    if run.unfinished:
        typer.echo(f"note: {run.path}: {run.unfinished}", err=True)
    names = wanted if wanted is not None else run.columns
    batches = run.scan(wanted, arm or None)
    with whole_file(out) as handle:
        WRITERS[written](handle, names, batches)


def _format(out: Path, asked: str | None) -> str:
    """What is asked for, else what the name ends in; one that ends in another format is refused."""
    ending = out.suffix.lower().lstrip(".")
    if asked is None and ending and ending not in WRITERS and is_replaced(out):
        raise SightlineError(f"--out {out}: no format ends in .{ending}; end it in .{', .'.join(WRITERS)}, or --format")
    if asked is not None and ending in WRITERS and ending != asked:
        raise SightlineError(f"--out {out} ends in .{ending}, but --format is {asked}: change one of the two")
    return asked or (ending if ending in WRITERS else "csv")


def _write_csv(handle: BinaryIO, names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
    from sightline.rows.text import csv_header, csv_lines

    handle.write(csv_header(list(names)))
    for batch in batches:
        handle.write(csv_lines(batch))


def _write_jsonl(handle: BinaryIO, names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
    from sightline.rows.text import json_lines

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


# ``sightline verify`` and ``compact``: whether a run folder is what was written, and the same with fewer files.


def verify(
    runs: Annotated[list[Place], place_argument("RUN...", "Run folders, or folders of parts of a run: paths or URLs.")],
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Set damaged files aside (.damaged), so that the next run computes them again."),
    ] = False,
) -> None:
    """Read all of a run and say what is wrong with it: a flipped bit, a file that is cut off, missing, there twice or
    of another run, rows that do not fit the probes, images without a record, a manifest or probe file that was changed.
    Rows that were not all computed alike (other batches, devices, versions) are named in a note.

    Exit code 0: nothing; 1: something, in a line each; 2: error.
    """
    from contextlib import nullcontext

    from sightline.progress import waiting_for
    from sightline.store.leases import locked
    from sightline.store.parts import part_folders
    from sightline.store.verify import verify_folder

    wrong = False
    for path in runs:
        for folder in part_folders(path):
            with locked(folder.path) if repair else nullcontext():
                with waiting_for(f"reading {folder.path}", logged=False):
                    found = verify_folder(folder.path)
                set_aside = [problem.set_aside() if repair else None for problem in found.problems]
            for problem, aside in zip(found.problems, set_aside, strict=True):
                typer.echo(f"{problem.words}; set aside as {aside.name}" if aside else problem.words)
            for note in found.notes:
                typer.echo(f"note: {note}")
            if not found.problems:
                typer.echo(f"{folder.path}: {found.files} files, {found.rows} rows, nothing wrong")
            elif repair:
                typer.echo(f"{folder.path}: run the same `sightline run` again to compute what is missing now")
            wrong = wrong or bool(found.problems)
    if wrong:
        raise typer.Exit(1)


def compact(
    run: Annotated[Place, place_argument("RUN", "Run folder, or a folder of parts of a run.")],
    out: Annotated[
        Place | None,
        typer.Option(
            metavar="PATH",
            parser=place,
            help="Write a compacted copy here, of a run in parts one whole run; left out: in the folder.",
        ),
    ] = None,
) -> None:
    """Put the many files of a run into few: the same rows in the same order, every bit of them.

    Kill it at any moment and run it again. A compacted run can be gone on with, amended and verified as before; a
    folder that is being written to is refused.
    """
    from sightline.progress import waiting_for
    from sightline.store.compaction import compact_run
    from sightline.store.leases import locked
    from sightline.store.parts import part_folders

    with waiting_for(f"compacting {run}", logged=False), locked(*(folder.path for folder in part_folders(run))):
        done = compact_run(run, out)
    typer.echo(
        f"{out or run}: {done.files_before} files of {done.bytes_before / 1e6:.1f} MB are now "
        f"{done.files_after} of {done.bytes_after / 1e6:.1f} MB"
    )
