"""``sightline doctor`` and ``sightline ask``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sightline.auditing.config import SPEED
from sightline.commands.from_config import ImageOption, former_flags, pairs
from sightline.progress import waiting_for

ModelOption = Annotated[str, typer.Option(help="Checkpoint folder or hub id.")]
DtypeOption = Annotated[
    Literal["auto", "float32", "bfloat16", "float16"],
    typer.Option(help="Precision of the weights; auto is the one the checkpoint was saved in.", rich_help_panel=SPEED),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.", rich_help_panel=SPEED)]


def doctor(
    model: ModelOption,
    image: Annotated[Path | None, typer.Option(help="Image to check with; a drawn one if left out.")] = None,
    dtype: DtypeOption = "float32",
    device: DeviceOption = "auto",
    attention: Annotated[
        Literal["sdpa", "eager"],
        typer.Option(help="Attention kernel: PyTorch's fused one, or plain matrix products.", rich_help_panel=SPEED),
    ] = "sdpa",
    image_option: ImageOption = None,
    max_pixels: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Check on your own checkpoint that the audited path is the model's own: logits, cells, positions, batches."""
    from rich.console import Console

    with waiting_for("starting", logged=False):
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
    arm: Annotated[str, typer.Option(help="Selector, budget and arguments: full, target:0.3.")] = "full",
    target: Annotated[str, typer.Option(help="String whose tokens are the target span.")] = "",
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = 32,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    clip: Annotated[str | None, typer.Option(help="CLIP checkpoint, for selectors that need one.")] = None,
) -> None:
    """Answer an open question from a pruned prefix, greedily."""
    with waiting_for("starting", logged=False):
        from sightline.answering.ask import ask as answer

    reply = answer(
        model, image, question, arm, target=target, max_new_tokens=max_new_tokens, dtype=dtype, device=device, clip=clip
    )
    typer.echo(reply.text)
    typer.echo(f"({reply.kept} of {reply.full} visual tokens kept by {arm})", err=True)
