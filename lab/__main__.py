"""``python -m lab``: draws scenes and stand-ins, trains the shipped readers, writes their model cards."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from sightline.commands.options import Commands
from sightline.errors import SightlineError

MODEL, STEPS, SPEED, CHECKS = "What is trained", "Steps", "Speed", "Checks on the way"
"""Panels of the help."""

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


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Folder for the training state and metrics.json.")],
    resume: Annotated[Path | None, typer.Option(help="--out of the leg before.")] = None,
    minutes: Annotated[float, typer.Option(min=0.0, help="Wall-clock minutes of this leg, all included.")] = 9.0,
    progress: Annotated[
        str, typer.Option(metavar="FROM:TO", help="Part of the schedule that this leg covers, in 0..1.")
    ] = "0:1",
    reserve: Annotated[float, typer.Option(min=0.0, help="Seconds kept for saving and the last check.")] = 40.0,
    form: Annotated[
        Literal["qwen3_vl", "llava"], typer.Option(help="Architecture of the model.", rich_help_panel=MODEL)
    ] = "qwen3_vl",
    preset: Annotated[Literal["full", "toy"], typer.Option(help="Size of the model.", rich_help_panel=MODEL)] = "full",
    language_only: Annotated[
        bool,
        typer.Option(
            "--language-only",
            help="Train the language layers; vision tower and embeddings stay.",
            rich_help_panel=MODEL,
        ),
    ] = False,
    both: Annotated[
        bool,
        typer.Option("--both", help="Ask half of the images open questions from the start.", rich_help_panel=MODEL),
    ] = False,
    open: Annotated[
        bool,
        typer.Option("--open", help="Teach a trained reader to answer open questions too.", rich_help_panel=MODEL),
    ] = False,
    silence: Annotated[
        bool,
        typer.Option(
            "--silence",
            help="With --open or --both: where no cell of an answer is left, train to say nothing.",
            rich_help_panel=MODEL,
        ),
    ] = False,
    start: Annotated[
        Path | None,
        typer.Option(
            help="Checkpoint that --open starts from.",
            show_default="the shipped reader of that form",
            rich_help_panel=MODEL,
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Pages per step.", rich_help_panel=STEPS)] = 96,
    lr: Annotated[float, typer.Option(min=0.0, help="Peak of the learning rate.", rich_help_panel=STEPS)] = 1e-3,
    seed: Annotated[int, typer.Option(help="Seed of pages and weights.", rich_help_panel=STEPS)] = 1,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0, help="Processes that draw pages.", show_default="two fewer than cores", rich_help_panel=SPEED
        ),
    ] = None,
    compile: Annotated[
        bool | None,
        typer.Option(
            "--compile/--no-compile", help="Compile the steps.", show_default="on a GPU", rich_help_panel=SPEED
        ),
    ] = None,
    mixed: Annotated[
        bool | None,
        typer.Option(
            "--mixed/--no-mixed",
            help="Matrix products in bfloat16.",
            show_default="on a GPU",
            rich_help_panel=SPEED,
        ),
    ] = None,
    log_every: Annotated[int, typer.Option(min=1, help="Steps between two lines.", rich_help_panel=CHECKS)] = 100,
    eval_images: Annotated[int, typer.Option(min=1, help="Held-out pages of a check.", rich_help_panel=CHECKS)] = 256,
    eval_seconds: Annotated[
        float, typer.Option(min=0.0, help="Seconds between two checks.", rich_help_panel=CHECKS)
    ] = 120.0,
) -> None:
    """Train the reader in legs, each a part of the schedule within its minutes: from scratch, or on with --open."""
    given = dict(locals())
    for name, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise SightlineError(f"--{name.replace('_', '-')} {value} is not a finite number")
    from lab.reader.train import main
    from sightline.places.writing import refuse_unusable_place

    refuse_unusable_place(out)
    main(list(_spelled(given)))


def _spelled(given: Mapping[str, object]) -> Iterator[str]:
    """Options as the training script takes them, which knows nothing of typer; what is None is left to it."""
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            if value or name not in ("language_only", "both", "open", "silence"):
                yield flag if value else f"--no-{flag.removeprefix('--')}"
        elif value is not None:
            yield f"{flag}={value}"


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
