"""``sightline rows``, ``verify``, ``compact``, ``show``, ``masks``: what a run folder holds, and if it is whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, TypeGuard

import typer

from sightline.commands.options import (
    AsOneOption,
    DeviceOption,
    RunArgument,
    Written,
    as_one_run,
    place_argument,
    with_options,
)
from sightline.core.flags import TAKES_URL, Flag
from sightline.errors import SightlineError
from sightline.places.listing import Place
from sightline.places.writing import STANDARD_OUTPUT, is_replaced, refuse_binary_on_terminal, whole_file
from sightline.progress import say

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from sightline.rows.run import Run


@with_options
def rows(
    folders: Annotated[list[Place], place_argument("RUN...")],
    format: Annotated[Literal["csv", "jsonl", "parquet"] | None, Flag(shown="the ending of --out, else csv")] = None,
    out: Annotated[Path, Written()] = Path(STANDARD_OUTPUT),
    columns: str | None = None,
    arm: list[str] | None = None,
    as_one: AsOneOption = False,
) -> None:
    """Export the rows of a run, in bounded memory. Masks are written as base64 in csv and jsonl.

    In csv a text that a spreadsheet would take for a formula (it begins with =, +, -, @, a tab or a carriage return)
    gets an apostrophe in front; jsonl and parquet have it as it is.
    """
    from sightline.rows.run import load_run

    written = _format(out, format)
    if written == "parquet":
        refuse_binary_on_terminal(out, "parquet")
    run = load_run(as_one_run(folders, as_one=as_one))
    wanted = list(dict.fromkeys(name.strip() for name in (columns or "").split(",") if name.strip())) or None
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


@with_options
def verify(
    given: Annotated[list[Place], place_argument("RUN|PROBES...")],
    repair: bool = False,
    images: Path | None = None,
    image_prefix: str = "",
) -> None:
    """Read all of a run, or a probe file against its lock, and say what is wrong with it.

    Of a run that is a flipped bit, a file that is cut off, missing, there twice or of another run, rows that do not fit
    the probes, images without a record, a manifest or probe file that was changed. Rows not all computed alike (other
    batches, devices, versions) are named in a note.

    Exit code 0: nothing; 1: something, in a line each; 2: error.
    """
    from contextlib import nullcontext

    from sightline.progress import waiting_for
    from sightline.store.folder import part_folders
    from sightline.store.leases import locked
    from sightline.store.verify import verify_folder

    wrong = False
    for path in given:
        if _is_probe_file(path):
            from sightline.commands.probes import verify_probes

            verify_probes(path, images, image_prefix)
            continue
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


def _is_probe_file(path: Place) -> TypeGuard[Path]:
    return isinstance(path, Path) and (path.suffix in (".jsonl", ".gz") or (path.exists() and not path.is_dir()))


@with_options
def compact(
    run: Annotated[Place, place_argument("RUN")],
    out: Annotated[Place | None, TAKES_URL, Flag(metavar="PATH")] = None,
) -> None:
    """Put the many files of a run into few: the same rows in the same order, every bit of them.

    Kill it at any moment and run it again. A compacted run can be gone on with, amended and verified as before; a
    folder that is being written to is refused.
    """
    from sightline.progress import waiting_for
    from sightline.store.folder import part_folders
    from sightline.store.leases import locked
    from sightline.store.verify import compact_run

    with waiting_for(f"compacting {run}", logged=False), locked(*(folder.path for folder in part_folders(run))):
        done = compact_run(run, out)
    typer.echo(
        f"{out or run}: {done.files_before} files of {done.bytes_before / 1e6:.1f} MB are now "
        f"{done.files_after} of {done.bytes_after / 1e6:.1f} MB"
    )


# ``sightline show``: one probe, what every arm answered, and a picture of what each kept.


@with_options
def show(
    folder: RunArgument,
    probe: Annotated[str, typer.Argument(metavar="PROBE")],
    arm: list[str] | None = None,
    out: Annotated[Path | None, Written()] = None,
    images: Annotated[Place | None, TAKES_URL] = None,
    view: str | None = None,
) -> None:
    """Show one probe: question, regions, every arm's answer with its coverage, and what the arms kept as a picture.

    Of an open question also the accepted answers, what each region is to it, and the score of what every arm said.

    Without --arm the table has all arms and the picture those without an intervention.
    """
    from sightline.rows.run import load_run

    if out is not None:
        _refuse_unknown_kind(out)
    run = load_run(folder)
    rows = _rows(run, probe, arm or [], view)
    _print_probe(run, rows)
    _print_arms(rows)
    if run.unfinished:
        say(f"note: {folder}: {run.unfinished}", err=True)
    if out is not None:
        _write_picture(run, probe, arm or [], images, view, out)


def _refuse_unknown_kind(out: Path) -> None:
    from PIL import Image

    from sightline.places.writing import refuse_binary_on_terminal

    refuse_binary_on_terminal(out, "a picture")
    if _ending(out) not in Image.registered_extensions() or Image.EXTENSION[_ending(out)] not in Image.SAVE:
        raise SightlineError(f"--out {out}: no kind of picture ends in '{out.suffix}'; write .png or .jpg")


def _ending(out: Path) -> str:
    """By which a picture's format is known; what has no ending, such as standard output, gets PNG."""
    return out.suffix.lower() or ".png"


def _rows(run: Run, probe: str, arms: list[str], view: str | None) -> pd.DataFrame:
    """The probe's rows in the order of the run's arms, or of those that are named."""
    import pandas as pd

    if arms:
        return pd.DataFrame([run.row(probe, arm, view) for arm in arms])
    frame = run.frame(texts=False)
    rows: pd.DataFrame = frame[frame["probe_id"] == probe]
    if view is not None:
        rows = rows[rows["view"] == view]
    if rows.empty:
        run.row(probe, run.arms[0], view)  # says what is wrong, and what was meant
    return rows


def _print_probe(run: Run, rows: pd.DataFrame) -> None:
    from sightline.core.table import print_rows
    from sightline.geometry.marks import marks_of
    from sightline.progress import SafeConsole
    from sightline.rows.run import image_of, probe_of

    first = rows.iloc[0]
    probe, record = probe_of(run, first), image_of(run, first)
    if probe.get("answers"):
        asked = _accepted(probe)
    else:
        asked = {"label": first["label"], "target": probe["target_text"], "in the regions": probe["source_text"]}
    lines = {
        "probe": f"{first['probe_id']}{f' ({kind})' if (kind := first['kind']) else ''}",
        "question": probe["question"],
        **asked,
        "image": f"{record['image']}, {record['width']} x {record['height']} pixels, {first['n_tokens']} tokens",
    }
    rows_of_words = [(name, str(text)) for name, text in lines.items()]
    regions = probe.get("regions") or ()
    for number, (box, mark) in enumerate(zip(regions, marks_of(probe.get("roles") or (), len(regions)), strict=True)):
        role = f"{mark.letter} {mark.words}: " if mark.letter else ""
        rows_of_words.append(("regions" if number == 0 else "", role + _box_words(box, record)))
    print_rows(SafeConsole(), ("", ""), rows_of_words, header=False)


def _accepted(probe: dict[str, Any]) -> dict[str, str]:
    """The accepted answers of an open question, with how many people gave each where several did."""
    counts = Counter(probe["answers"])
    said = ", ".join(f"{answer} ({n} times)" if n > 1 else answer for answer, n in counts.items())
    return {"accepted": said, **({"task": probe["task"]} if probe.get("task") else {})}


def _box_words(box: list[float], record: dict[str, Any]) -> str:
    """A box as the probe file has it, and in pixels."""
    x1, y1, x2, y2 = (round(v * side) for v, side in zip(box, (record["width"], record["height"]) * 2, strict=True))
    fractions = ", ".join(f"{value:.4f}" for value in box)
    return f"{fractions}: {x2 - x1} x {y2 - y1} pixels at {x1}, {y1}"


def _print_arms(rows: pd.DataFrame) -> None:
    from sightline.core.table import Table, TableColumn
    from sightline.progress import SafeConsole
    from sightline.report.columns import table_column, table_columns

    several_views = bool(rows.duplicated("arm").any())
    columns = table_columns(
        "arm view predicted" if several_views else "arm predicted",
        TableColumn("verdict", ""),
        "score answer_loss" if "score" in rows else "margin",
        "k_tokens ecr visible",
        table_column("legibility", kind="number"),
    )
    frame = rows.assign(verdict=rows["correct"].map({True: "right", False: "wrong"}))
    Table("arms", "", "", columns, frame).terminal(SafeConsole())


def _write_picture(run: Run, probe: str, arms: list[str], images: Place | None, view: str | None, out: Path) -> None:
    from PIL import Image

    from sightline.places.writing import write_whole
    from sightline.probes.images import stored_as

    picture = run.picture(probe, *arms, images=images, view=view)
    sources = picture.info["sources"]
    write_whole(out, stored_as(picture, Image.registered_extensions()[_ending(out)]))
    blurred = sources.count("preview")
    origin = (
        "the image file"
        if not blurred
        else "the stored preview"
        if blurred == len(sources)
        else "the image file and, where an arm saw something else, the stored preview"
    )
    say(f"wrote {out}: {picture.width} x {picture.height} pixels, from {origin}")
    if images is None:
        say("note: --images FOLDER draws it as sharp as the image file", err=True)


# ``sightline masks``: which tokens an arm kept, as a file that can be replayed.

AGAIN = "For an arm that merges, which is computed again"
"""Panel of the help."""

masks = typer.Typer(help="Masks of a run: which visual tokens an arm kept or merged.", no_args_is_help=True)


@masks.callback()
def _masks() -> None:
    """Masks of a run: which visual tokens an arm kept or merged."""


@masks.command()
@with_options
def export(
    folder: RunArgument,
    arm: str,
    out: Annotated[Path, Written(".jsonl")],
    model: Annotated[str | None, Flag(AGAIN)] = None,
    images: Annotated[Place | None, TAKES_URL, Flag(AGAIN)] = None,
    device: DeviceOption = "auto",
    clip: Annotated[str | None, Flag(AGAIN)] = None,
) -> None:
    """Write an arm's masks as a file for the arm masks:file=FILE.

    A line has the probe's id, the number of tokens and their layout, against which a replay is checked, and the kept
    indices: 0 is the first token of the first block, row by row. A run keeps no weights of merges, so they are computed
    again with --model and --images, and refused if they are not those of the run.
    """
    import json

    from sightline.probes.data_rows import write_text
    from sightline.rows.run import load_run

    run = load_run(folder)
    if (model is None) != (images is None):
        raise SightlineError("--model and --images go together: both are needed to compute merges again")
    from sightline.auditing.mask_export import config_of, exported_masks, exported_merges

    if model is None or images is None:
        lines = exported_masks(run, arm)
    else:
        lines = exported_merges(run, arm, config_of(run, model, images, device=device, clip=clip))
    text = [json.dumps(line, ensure_ascii=False) + "\n" for line in lines]
    write_text(out, "".join(text))
    say(f"wrote {out}: {len(text)} masks of {arm}")
    if run.unfinished:
        say(f"note: {folder}: {run.unfinished}", err=True)
