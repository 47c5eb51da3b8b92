"""``sightline run``, ``rows`` and ``selectors``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sightline.errors import SightlineError


def run(
    model: Annotated[str | None, typer.Option(help="Checkpoint folder or hub id.")] = None,
    probes: Annotated[Path | None, typer.Option(help="Probe file.")] = None,
    images: Annotated[Path | None, typer.Option(help="Folder that image names are relative to.")] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(help="Selector, budget, arguments: full, target:0.3, random:192t, scope:0.4:alpha=0. Repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder: created, resumed or amended.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with these options; flags win.")] = None,
    interventions: Annotated[
        str | None,
        typer.Option(help="Comma-separated: deletion, occlusion, blank, positions. Adds edited versions of the arms."),
    ] = None,
    box_source: Annotated[
        str | None,
        typer.Option(
            help="Boxes that selectors see: annotation, jitter_light, jitter_heavy, detected_like, low_recall, "
            "missing, rapidocr, easyocr, tesseract. Coverage is audited against the annotation. [default: annotation]"
        ),
    ] = None,
    matched_controls: Annotated[
        bool | None,
        typer.Option(
            "--matched-controls/--no-matched-controls",
            help="Add Random and Grid at the budget of every arm that claims coverage. [default: matched-controls]",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of drawn selections. [default: 17]")] = None,
    positions: Annotated[
        Literal["auto", "preserve", "compact"] | None,
        typer.Option(help="Logical positions of kept tokens. [default: auto, the paper's per architecture]"),
    ] = None,
    profile: Annotated[
        Literal["paper", "artifact"] | None,
        typer.Option(help="As the paper defines it, or as its published numbers were made. [default: paper]"),
    ] = None,
    dtype: Annotated[Literal["auto", "float32", "bfloat16", "float16"] | None, typer.Option()] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1. [default: auto]")] = None,
    attention: Annotated[Literal["sdpa", "eager"] | None, typer.Option()] = None,
    execution: Annotated[
        Literal["eager", "compiled", "graph"] | None,
        typer.Option(help="Language layers one kernel at a time, compiled, or as CUDA graphs. [default: eager]"),
    ] = None,
    image_prefix: Annotated[str | None, typer.Option(help="Leading part of image names to strip.")] = None,
    clip: Annotated[str | None, typer.Option(help="CLIP checkpoint, for selectors that need one.")] = None,
    min_pixels: Annotated[int | None, typer.Option(help="Qwen3-VL: lower bound of the resized area.")] = None,
    max_pixels: Annotated[int | None, typer.Option(help="Qwen3-VL: upper bound of the resized area.")] = None,
    min_tiles: Annotated[int | None, typer.Option(help="InternVL: fewest tiles.")] = None,
    max_tiles: Annotated[int | None, typer.Option(help="InternVL: most tiles.")] = None,
    shard_images: Annotated[int | None, typer.Option(help="Images per shard. [default: 8; GPU: 64]")] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(help="Language tokens per forward. [default: 16384; GPU: 32768]")
    ] = None,
    batch_images: Annotated[int | None, typer.Option(help="Images per vision call. [default: 1]")] = None,
    limit: Annotated[int | None, typer.Option(help="Audit only the first so many images.")] = None,
) -> None:
    """Audit arms on a probe set. Kill it at any moment and run the same command again: finished shards are kept."""
    from sightline.auditing.config import read_config

    given = {
        name: value for name, value in locals().items() if name not in ("config", "arm", "interventions", "read_config")
    }
    chosen = [name.strip() for name in (interventions or "").split(",") if name.strip()]
    settings = read_config(config, {**given, "arms": arm, "interventions": chosen})
    from sightline.auditing.audit import audit
    from sightline.commands.run_summary import print_summary

    finished = audit(settings)
    print_summary(finished)


def rows(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    format: Annotated[Literal["csv", "jsonl", "parquet"], typer.Option(help="Output format.")] = "csv",
    out: Annotated[Path | None, typer.Option(help="File to write; standard output if left out.")] = None,
) -> None:
    """Export the rows of a run. Masks are written as base64 in csv and jsonl."""
    import base64
    import io

    import pyarrow.parquet as pq

    from sightline.store import load_run

    table = load_run(folder).rows
    buffer = io.BytesIO()
    if format == "parquet":
        pq.write_table(table, buffer)
    else:
        frame = table.to_pandas()
        for column in ("kept_mask", "lineage_mask"):
            frame[column] = [None if v is None else base64.b64encode(v).decode() for v in frame[column]]
        if format == "csv":
            frame.to_csv(buffer, index=False)
        else:
            frame.to_json(buffer, orient="records", lines=True, force_ascii=False)
    if out is not None:
        from sightline.store.folder import write_whole

        write_whole(out, buffer.getvalue())
    elif format == "parquet" and sys.stdout.isatty():
        raise SightlineError("parquet is binary: name a file with --out")
    else:
        sys.stdout.buffer.write(buffer.getvalue())


def selectors(name: Annotated[str | None, typer.Argument(help="Show one selector in full.")] = None) -> None:
    """List the pruning methods: one line each, or one in full."""
    import inspect

    from rich.console import Console
    from rich.table import Table

    from sightline.arms.arm import parameters
    from sightline.selectors import SELECTORS

    console = Console()
    if name is not None:
        kind: Any = SELECTORS.get(name)
        console.print(f"[bold]{name}[/]  arguments: {parameters(kind) or 'none'}")
        console.print(inspect.getdoc(kind) or "", markup=False)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("selector", "idea", "parity", "arguments"):
        table.add_column(column, overflow="fold")
    for known in SELECTORS:
        kind = SELECTORS.get(known)
        idea = (inspect.getdoc(kind) or "").splitlines()[0]
        table.add_row(known, idea, kind.parity, parameters(kind))
    console.print(table)
