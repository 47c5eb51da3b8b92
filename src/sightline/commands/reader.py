"""``sightline reader``: the embedded reader's training, scenes and model card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sightline.errors import SightlineError

app = typer.Typer(help="The embedded reader: draw its scenes, train it, write its model card.", no_args_is_help=True)


@app.command()
def scenes(
    split: Annotated[Literal["development", "confirmation"], typer.Option(help="Fixes fonts, words and layout seeds.")],
    out: Annotated[Path, typer.Option(help="Folder for annotations.json and images/.")],
    images: Annotated[int, typer.Option(min=1, help="How many scenes; the first ones stay the same.")] = 200,
) -> None:
    """Draw synthetic scenes with word boxes in TextOCR's layout, for ``sightline probes build --format textocr``."""
    from sightline.probes.scenes.textocr_set import ANNOTATIONS, IMAGES, write_scenes
    from sightline.progress import Progress
    from sightline.store.folder import refuse_unusable_place

    refuse_unusable_place(out)
    with Progress("drawing", images, "images") as bar:
        document = write_scenes(split, images, out, bar.advance)
    typer.echo(f"{len(document['imgs'])} images with {len(document['anns'])} words: {out / IMAGES}")
    typer.echo(f"annotations: {out / ANNOTATIONS}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def train(context: typer.Context) -> None:
    """Train the reader in legs: ``sightline reader train --help`` lists the options."""
    from sightline.reader.train import main

    main(context.args)


@app.command()
def export(
    state: Annotated[Path, typer.Argument(help="--out of the last leg of training.")],
    out: Annotated[Path, typer.Option(help="Checkpoint folder.")],
) -> None:
    """Turn a training state into an ordinary checkpoint folder."""
    import shutil

    from sightline.reader.export import export as write_checkpoint
    from sightline.reader.model_card import TRAINING
    from sightline.store.folder import refuse_unusable_place

    refuse_unusable_place(out)
    write_checkpoint(state, out)
    metrics = state / "metrics.json"
    if not metrics.is_file():
        raise SightlineError(f"{metrics} is missing: the leg has not finished, so there is nothing to say in a card")
    shutil.copyfile(metrics, out / TRAINING)
    typer.echo(f"checkpoint: {out}")


@app.command()
def card(
    model: Annotated[Path, typer.Option(help="Checkpoint folder with training.json; README.md is written there.")],
    run: Annotated[Path, typer.Option(help="Run of the reader on the confirmation set with the card's arms.")],
    controls: Annotated[Path, typer.Option(help="Run of full on the image-free control set.")],
) -> None:
    """Write the model card: data, losses, held-out figures, targets met and missed, limits."""
    from sightline.reader.model_card import write_card

    for path in write_card(model, run, controls):
        typer.echo(f"wrote {path}")
