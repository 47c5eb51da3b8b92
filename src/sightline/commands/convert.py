"""``sightline convert``: a checkpoint that has pickled weights alone, made usable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def convert(
    model: Annotated[str, typer.Argument(help="Checkpoint folder or hub id with pytorch_model.bin.")],
    out: Annotated[Path, typer.Option(help="New folder for the checkpoint with safetensors.")],
) -> None:
    """Write a checkpoint anew with safetensors weights; pickled ones can run code and are not loaded elsewhere."""
    from sightline.backbones.converting import convert as convert_checkpoint

    typer.echo(f"checkpoint: {convert_checkpoint(model, out)}")
