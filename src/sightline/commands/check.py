"""``sightline doctor`` and ``sightline ask``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sightline.commands.from_config import ImageOption, former_flags, pairs

ModelOption = Annotated[str, typer.Option(help="Checkpoint folder or hub id.")]
DtypeOption = Annotated[Literal["auto", "float32", "bfloat16", "float16"], typer.Option()]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.")]


def doctor(
    model: ModelOption,
    image: Annotated[Path | None, typer.Option(help="Image to check with; a drawn one if left out.")] = None,
    dtype: DtypeOption = "float32",
    device: DeviceOption = "auto",
    attention: Annotated[Literal["sdpa", "eager"], typer.Option()] = "sdpa",
    image_option: ImageOption = None,
    max_pixels: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Check on your own checkpoint that the audited path is the model's own: logits, cells, positions, batches."""
    from rich.console import Console

    from sightline.checks.doctor import examine

    console = Console()
    options = {**former_flags({"max_pixels": max_pixels}), **pairs(image_option, "--image-option")}
    findings = examine(model, image, dtype=dtype, device=device, attention=attention, image_options=options)
    failed = 0
    for finding in findings:
        failed += not finding.passed
        mark = "[green]ok    [/]" if finding.passed else "[red]FAILED[/]"
        console.print(f"{mark} {finding.words}", highlight=False)
    if failed:
        console.print(f"{failed} of {len(findings)} checks failed: rows from this checkpoint would not be trustworthy")
        raise typer.Exit(1)
    console.print(f"all {len(findings)} checks passed")


def ask(
    question: Annotated[str, typer.Argument(help="Question about the image.")],
    model: ModelOption,
    image: Annotated[Path, typer.Option(help="Image.")],
    arm: Annotated[str, typer.Option(help="Selector and budget.")] = "full",
    target: Annotated[str, typer.Option(help="String whose tokens are the target span.")] = "",
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 32,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    clip: Annotated[str | None, typer.Option(help="CLIP checkpoint, for selectors that need one.")] = None,
) -> None:
    """Answer an open question from a pruned prefix, greedily."""
    from sightline.answering.ask import ask as answer

    reply = answer(
        model, image, question, arm, target=target, max_new_tokens=max_new_tokens, dtype=dtype, device=device, clip=clip
    )
    typer.echo(reply.text)
    typer.echo(f"({reply.kept} of {reply.full} visual tokens kept by {arm})", err=True)
