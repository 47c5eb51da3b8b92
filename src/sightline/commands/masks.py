"""``sightline masks``: which tokens an arm kept, as a file that can be replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sightline.commands.check import DeviceOption
from sightline.commands.options import RunArgument, file_option, place_option
from sightline.errors import SightlineError
from sightline.places import Place
from sightline.progress import say

AGAIN = "For an arm that merges, which is computed again"
"""Panel of the help."""

app = typer.Typer(help="Masks of a run: which visual tokens an arm kept or merged.", no_args_is_help=True)


@app.callback()
def _masks() -> None:
    """Masks of a run: which visual tokens an arm kept or merged."""


@app.command()
def export(
    folder: RunArgument,
    arm: Annotated[str, typer.Option(help="Arm of the run, as run.json spells it.")],
    out: Annotated[
        Path, file_option("File to write: JSON lines, gzipped if its name ends in .gz.", endings=(".jsonl",))
    ],
    model: Annotated[
        str | None, typer.Option(help="The run's checkpoint: folder or hub id.", rich_help_panel=AGAIN)
    ] = None,
    images: Annotated[
        Place | None, place_option("Folder that image names are relative to.", rich_help_panel=AGAIN)
    ] = None,
    device: DeviceOption = "auto",
    clip: Annotated[
        str | None, typer.Option(help="CLIP checkpoint, for selectors that need one.", rich_help_panel=AGAIN)
    ] = None,
) -> None:
    """Write an arm's masks as a file for the arm masks:file=FILE.

    A line has the probe's id, the number of tokens and their layout, against which a replay is checked, and the kept
    indices: 0 is the first token of the first block, row by row. A run keeps no weights of merges, so they are computed
    again with --model and --images, and refused if they are not those of the run.
    """
    import gzip
    import json

    from sightline.places.writing import write_whole
    from sightline.rows import load_run

    run = load_run(folder)
    if (model is None) != (images is None):
        raise SightlineError("--model and --images go together: both are needed to compute merges again")
    from sightline.auditing.mask_export import config_of, exported_masks, exported_merges

    if model is None or images is None:
        lines = exported_masks(run, arm)
    else:
        lines = exported_merges(run, arm, config_of(run, model, images, device=device, clip=clip))
    text = [json.dumps(line, ensure_ascii=False) + "\n" for line in lines]
    data = "".join(text).encode()
    write_whole(out, gzip.compress(data, mtime=0) if out.suffix == ".gz" else data)
    say(f"wrote {out}: {len(text)} masks of {arm}")
    if run.unfinished:
        say(f"note: {folder}: {run.unfinished}", err=True)
