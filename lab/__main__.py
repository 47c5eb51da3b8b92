"""``python -m lab``: draws scenes and stand-ins, trains the shipped readers, writes their model cards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sightline.commands.options import Commands
from sightline.errors import SightlineError

app = typer.Typer(
    name="python -m lab",
    cls=Commands,
    help="Where the shipped readers and scenes come from: draw scenes, train, write a model card.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def scenes(
    split: Annotated[Literal["development", "confirmation"], typer.Option(help="Fixes fonts, words and layout seeds.")],
    out: Annotated[Path, typer.Option(help="Folder for annotations.json and images/.")],
    images: Annotated[int, typer.Option(min=1, help="How many scenes; the first ones stay the same.")] = 200,
    open: Annotated[
        bool, typer.Option("--open", help="Scenes with open questions: open_probes.jsonl and open_images/ instead.")
    ] = False,
) -> None:
    """Draw synthetic scenes with word boxes in TextOCR's layout, for ``sightline probes build --format textocr``."""
    from lab.scenes.open_set import (
        ANNOTATIONS,
        IMAGES,
        OPEN_IMAGES,
        OPEN_PROBES,
        write_open_set,
        write_scenes,
    )
    from sightline.places.writing import refuse_unusable_place
    from sightline.progress import Progress

    refuse_unusable_place(out)
    if open:
        with Progress("drawing", images, "images") as bar:
            probes = write_open_set(split, images, out, bar.advance)
        typer.echo(f"{images} images with {len(probes.probes)} open questions: {out / OPEN_IMAGES}")
        typer.echo(f"probes: {out / OPEN_PROBES}")
        return
    with Progress("drawing", images, "images") as bar:
        document = write_scenes(split, images, out, bar.advance)
    typer.echo(f"{len(document['imgs'])} images with {len(document['anns'])} words: {out / IMAGES}")
    typer.echo(f"annotations: {out / ANNOTATIONS}")


@app.command()
def stand_ins(
    out: Annotated[Path, typer.Option(help="Archive to write; the package ships it as assets/stand-ins.tar.xz.")],
) -> None:
    """Draw pages and questions in the layouts of TextVQA, DocVQA and OCRBench, for demonstrations of the paper."""
    from lab.stand_ins import write_archive
    from sightline.places.writing import refuse_unusable_place

    refuse_unusable_place(out)
    write_archive(out)
    typer.echo(f"archive: {out}")


# Its options are said once, by the script, which knows nothing of typer.
@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train(context: typer.Context) -> None:
    """Train the reader in legs, each a part of the schedule within its minutes: from scratch, or on with --open."""
    from lab.reader.train import main

    main(context.args)


@app.command()
def export(
    state: Annotated[Path, typer.Argument(help="--out of the last leg of training.")],
    out: Annotated[Path, typer.Option(help="Checkpoint folder.")],
    after: Annotated[
        Path | None, typer.Option(help="Checkpoint that --open started from: its training record comes first.")
    ] = None,
) -> None:
    """Turn a training state into an ordinary checkpoint folder."""
    import json

    from lab.reader.export import export as write_checkpoint
    from lab.reader.training_record import TRAINING, continued, read_record
    from sightline.places.writing import refuse_unusable_place

    refuse_unusable_place(out)
    before = None if after is None else read_record(after)
    write_checkpoint(state, out)
    metrics = state / "metrics.json"
    if not metrics.is_file():
        raise SightlineError(f"{metrics} is missing: the leg has not finished, so there is nothing to say in a card")
    record = json.loads(metrics.read_text(encoding="utf-8"))
    text = json.dumps(record if before is None else continued(before, record))
    (out / TRAINING).write_text(text, encoding="utf-8")
    typer.echo(f"checkpoint: {out}")


@app.command()
def card(
    model: Annotated[Path, typer.Option(help="Checkpoint folder with training.json; README.md is written there.")],
    run: Annotated[Path, typer.Option(help="Run of the reader on the confirmation set with the card's arms.")],
    controls: Annotated[Path, typer.Option(help="Run of full on the image-free control set.")],
    open_run: Annotated[
        Path | None, typer.Option(help="Run on the open questions of the confirmation set with --box-source gt.")
    ] = None,
    open_controls: Annotated[
        Path | None, typer.Option(help="Run of full on the open questions about wrong images.")
    ] = None,
) -> None:
    """Write the model card: data, losses, held-out figures, targets met and missed, limits."""
    from lab.reader.model_card import write_card

    for path in write_card(model, run, controls, open_run, open_controls):
        typer.echo(f"wrote {path}")


if __name__ == "__main__":
    from sightline.cli import main

    main(app)
