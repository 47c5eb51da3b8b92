"""``sightline doctor``, ``matrix``, ``ask`` and ``convert``: what is done with checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import Field

from sightline.auditing.config import AuditConfig
from sightline.commands.options import PAIR, DeviceOption, Written, named_models, pairs, with_options
from sightline.core.flags import SPEED, Flag
from sightline.errors import SightlineError
from sightline.progress import say, waiting_for

ModelOption = Annotated[str, Field(description="Checkpoint folder or hub id.")]
DtypeOption = Annotated[
    Literal["auto", "float32", "bfloat16", "float16"],
    Flag(SPEED),
    Field(description="Precision of the weights; auto is the one the checkpoint was saved in."),
]

ImageOption = Annotated[
    list[str] | None, Flag(metavar=PAIR), Field(description=AuditConfig.model_fields["image_options"].description)
]


@with_options
def doctor(
    model: ModelOption,
    image: Path | None = None,
    dtype: DtypeOption = "float32",
    device: DeviceOption = "auto",
    attention: Annotated[Literal["sdpa", "eager"], Flag(SPEED)] = "sdpa",
    image_option: ImageOption = None,
    methods: bool = True,
    json_file: Annotated[Path | None, Written(".json"), Flag(name="--json")] = None,
    page: Annotated[Path | None, Written(".html")] = None,
    library: str | None = None,
    probes: Path | None = None,
    images: Path | None = None,
) -> None:
    """Prove on your own checkpoint that what is audited is the model itself: logits, cells, batches, methods.

    Exit code 1 says that a check failed, 2 that the model cannot be served, with the reason in one line.
    """
    from sightline.engines import engine_of
    from sightline.progress import SafeConsole

    with waiting_for("starting", logged=False):
        from sightline.checks.demo import asset
        from sightline.checks.doctor import examine
        from sightline.checks.doctor.engines import examine_engine
        from sightline.checks.doctor.examination import print_examination, render
        from sightline.places.writing import write_whole

    if (engine := engine_of(model)) is not None:
        if page is not None:
            raise SightlineError("--page draws the cells of a checkpoint; of an engine there is --json")
        shipped = asset("scenes", "confirmation")
        found = examine_engine(
            engine, probes or shipped / "open_probes.jsonl", images or shipped / "open_images", library=library
        )
    else:
        found = examine(
            model,
            image,
            dtype=dtype,
            device=device,
            attention=attention,
            image_options=pairs(image_option, "--image-option"),
            methods=methods,
        )
    print_examination(found, SafeConsole(highlight=False))
    if json_file is not None:
        content = json.dumps(found.as_dict(), indent=2, ensure_ascii=False) + "\n"
        write_whole(json_file, content.encode(), make_parent=True)
    if page is not None:
        write_whole(page, render(found).encode(), make_parent=True)
    if found.failed:
        raise typer.Exit(1)


@with_options
def matrix(
    further: Annotated[list[str] | None, typer.Argument(metavar="[MODEL]...")] = None,
    models: Annotated[list[str] | None, Flag(metavar="MODEL")] = None,
    budget: str = "0.3",
    out: Annotated[Path | None, Written(".md")] = None,
    image: Path | None = None,
    clip: str | None = None,
    head: Annotated[list[str] | None, Flag(metavar="METHOD=FILE")] = None,
    dtype: DtypeOption = "float32",
    device: DeviceOption = "auto",
) -> None:
    """Run every pruning method on every model given: served, refused and why, milliseconds, what each keeps.

    A method counts as served where it ran twice with the same result and its rows were checked. Exit code 1 says that
    one failed that should run.
    """
    given = [*(models or []), *(further or [])]
    if not given:
        raise typer.BadParameter("name at least one model", param_hint="--models")
    named = named_models(given)
    heads = {method: Path(file) for method, _, file in (each.partition("=") for each in head or [])}
    with waiting_for("starting", logged=False):
        from sightline.arms import parse_arm
        from sightline.checks.matrix import page, run_matrix, sheet
        from sightline.places.writing import write_whole
        from sightline.probes.images import open_image
    opened = open_image(image.parent, image.name) if image else None
    for method, file in heads.items():
        parse_arm(f"{method}:{budget}:head={file}").selector.head_mismatch({})  # read before a model is loaded
    made = run_matrix(
        named,
        budget,
        opened,
        clip=clip,
        heads=lambda model: heads,
        dtype=dtype,
        device=device,
        tell=lambda line: say(line, err=True),
    )
    if out is None:
        say(page(made, None))
    else:
        drawn = out.with_suffix(".png")
        write_whole(drawn, sheet(made), make_parent=True)
        write_whole(out, page(made, drawn.name).encode(), make_parent=True)
        say(f"page: {out}, sheet: {drawn}")
    if made.failed:
        raise typer.Exit(1)


@with_options
def ask(
    question: Annotated[str, typer.Argument()],
    model: ModelOption,
    image: Path,
    arm: str = "full",
    target: str = "",
    max_new_tokens: Annotated[int, Field(ge=1)] = 32,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    clip: str | None = None,
) -> None:
    """Answer an open question from a pruned prefix, greedily."""
    with waiting_for("starting", logged=False):
        from sightline.answering.answerer import ask as answer

    reply = answer(
        model, image, question, arm, target=target, max_new_tokens=max_new_tokens, dtype=dtype, device=device, clip=clip
    )
    say(reply.text)
    say(f"({reply.kept} of {reply.full} visual tokens kept by {arm})", err=True)


@with_options
def convert(model: Annotated[str, typer.Argument()], out: Path) -> None:
    """Write a checkpoint anew with safetensors weights; pickled ones can run code and are not loaded elsewhere."""
    from sightline.backbones.loading import convert as convert_checkpoint

    typer.echo(f"checkpoint: {convert_checkpoint(model, out)}")
