"""``sightline verify`` and ``compact``: whether a run folder is what was written, and the same with fewer files."""

from __future__ import annotations

from typing import Annotated

import typer

from sightline.commands.path_or_url import place_argument
from sightline.places import Place, place


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

    from sightline.auditing.attendance import alone_in
    from sightline.progress import waiting_for
    from sightline.store.folder_check import verify_folder
    from sightline.store.run_parts import part_folders

    wrong = False
    for path in runs:
        for folder in part_folders(path):
            with alone_in(folder.path) if repair else nullcontext():
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
    from sightline.auditing.attendance import alone_in
    from sightline.progress import waiting_for
    from sightline.store.compaction import compact_run
    from sightline.store.run_parts import part_folders

    with waiting_for(f"compacting {run}", logged=False), alone_in(*(folder.path for folder in part_folders(run))):
        done = compact_run(run, out)
    typer.echo(
        f"{out or run}: {done.files_before} files of {done.bytes_before / 1e6:.1f} MB are now "
        f"{done.files_after} of {done.bytes_after / 1e6:.1f} MB"
    )
