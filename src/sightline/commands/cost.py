"""``sightline bench prefill|ttft|sweep``: what pruning really saves, measured in fresh processes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sightline.errors import SightlineError

Config = Annotated[str, typer.Option(help="A published shape: qwen3-vl-8b, llava-1.5-7b, internvl3.5-8b, or tiny-*.")]
Random = Annotated[bool, typer.Option("--random-weights", help="Needed with --config: weights do not affect speed.")]
Checkpoint = Annotated[str, typer.Option("--model", help="A checkpoint instead of a config: folder or hub id.")]
Arms = Annotated[list[str] | None, typer.Option("--arm", help="Arms to measure; repeatable.")]
Executions = Annotated[
    str, typer.Option("--execution", help="Comma-separated: eager, compiled, graph; ttft also stock.")
]
Device = Annotated[str, typer.Option(help="auto, cuda or cpu.")]
Dtype = Annotated[str, typer.Option(help="auto (bfloat16 on a GPU, float32 on a CPU; a checkpoint's own), or a dtype.")]
Attention = Annotated[str, typer.Option(help="sdpa or eager.")]
Positions = Annotated[str, typer.Option(help="Position policy: auto, preserve, compact.")]
Picture = Annotated[str, typer.Option(help="WIDTHxHEIGHT of the picture. [default: the config's usual one]")]
TextTokens = Annotated[int, typer.Option(min=1, help="Text tokens of the prompt.")]
Repeats = Annotated[int, typer.Option(min=1, help="Samples kept.")]
WarmUp = Annotated[int, typer.Option(min=0, help="Samples thrown away first.")]
Clip = Annotated[str, typer.Option(help="CLIP checkpoint, for selectors that need one.")]
Shared = Annotated[bool, typer.Option("--share-process", help="All arms in one process: quicker, less clean.")]
Profile = Annotated[bool, typer.Option("--profile", help="Also show where the time goes, by kind of kernel.")]
Out = Annotated[Path | None, typer.Option(help="Cost card: JSON here, Markdown beside it.")]


def prefill(
    config: Config = "",
    random_weights: Random = False,
    model: Checkpoint = "",
    arm: Arms = None,
    batch: Annotated[
        str, typer.Option(help="Comma-separated batch sizes; max doubles until memory runs out.")
    ] = "1,32",
    execution: Executions = "eager,compiled",
    device: Device = "auto",
    dtype: Dtype = "auto",
    attention: Attention = "sdpa",
    positions: Positions = "auto",
    picture: Picture = "",
    text_tokens: TextTokens = 45,
    repeats: Repeats = 10,
    warm_up: WarmUp = 3,
    largest: Annotated[int, typer.Option(min=1, help="Where --batch max stops in any case.")] = 4096,
    profile: Profile = False,
    share_process: Shared = False,
    clip: Clip = "",
    out: Out = None,
) -> None:
    """Time and memory of the language layers over a batch of prefixes, full and pruned."""
    common = _common(config, random_weights, model, arm or ["full", "target:0.3", "target:0.2"], picture)
    common |= {"device": device, "dtype": dtype, "attention": attention, "positions": positions, "clip": clip}
    common |= {
        "text_tokens": text_tokens,
        "repeats": repeats,
        "warm_up": warm_up,
        "largest": largest,
        "profile": profile,
    }
    requests = [
        {**common, "kind": "prefill", "execution": mode, **size} for mode in _words(execution) for size in _sizes(batch)
    ]
    _measure(requests, share_process, out)


def ttft(
    config: Config = "",
    random_weights: Random = False,
    model: Checkpoint = "",
    arm: Arms = None,
    execution: Executions = "stock,eager,graph",
    decode: Annotated[str, typer.Option(help="Comma-separated numbers of further tokens; empty: none.")] = "1,32,128",
    box_source: Annotated[str, typer.Option(help="Where boxes come from; a detector is a stage.")] = "annotation",
    device: Device = "auto",
    dtype: Dtype = "auto",
    attention: Attention = "sdpa",
    positions: Positions = "auto",
    picture: Picture = "",
    text_tokens: TextTokens = 45,
    repeats: Repeats = 20,
    warm_up: WarmUp = 5,
    profile: Profile = False,
    share_process: Shared = False,
    clip: Clip = "",
    out: Out = None,
) -> None:
    """One picture to the first token, everything included, stage by stage; then decoding."""
    common = _common(config, random_weights, model, arm or ["full", "target:0.2"], picture)
    common |= {"device": device, "dtype": dtype, "attention": attention, "positions": positions, "clip": clip}
    common |= {"text_tokens": text_tokens, "repeats": repeats, "warm_up": warm_up, "box_source": box_source}
    common |= {"profile": profile}
    common |= {"kind": "ttft", "decode": tuple(_numbers(decode, "--decode")) if decode else ()}
    own: dict[str, Any] = {"arms": ("full",)}  # the model's own forward cannot prune
    requests = [{**common, "execution": mode, **(own if mode == "stock" else {})} for mode in _words(execution)]
    _measure(requests, share_process, out)


def sweep(
    config: Config = "",
    random_weights: Random = False,
    model: Checkpoint = "",
    arm: Arms = None,
    images: Annotated[int, typer.Option(min=1, help="Images of the sweep.")] = 100,
    probes: Annotated[int, typer.Option(min=1, help="Probes per image.")] = 2,
    execution: Executions = "compiled",
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens per language batch.")] = 32768,
    batch_images: Annotated[int, typer.Option(min=1, help="Images per vision batch.")] = 16,
    shard_images: Annotated[int, typer.Option(min=1, help="Images scored together, arm by arm.")] = 64,
    one_sample_rows: Annotated[int, typer.Option(min=1, help="Rows the one-sample procedure is timed on.")] = 24,
    device: Device = "auto",
    dtype: Dtype = "auto",
    attention: Attention = "sdpa",
    positions: Positions = "auto",
    picture: Picture = "",
    text_tokens: TextTokens = 45,
    warm_up: WarmUp = 3,
    clip: Clip = "",
    out: Out = None,
) -> None:
    """A whole audit sweep through the engine, against one sample at a time; both timed in one process."""
    from sightline.cost.request import SWEEP_ARMS

    common = _common(config, random_weights, model, arm or list(SWEEP_ARMS), picture)
    common |= {"device": device, "dtype": dtype, "attention": attention, "positions": positions, "clip": clip}
    common |= {"text_tokens": text_tokens, "warm_up": warm_up, "images": images, "probes": probes}
    common |= {"batch_tokens": batch_tokens, "batch_images": batch_images, "shard_images": shard_images}
    common |= {"one_sample_rows": one_sample_rows}
    _measure([{**common, "kind": "sweep", "execution": mode} for mode in _words(execution)], True, out)


def _common(config: str, random_weights: bool, model: str, arms: list[str], picture: str) -> dict[str, Any]:
    if bool(config) == bool(model):
        raise SightlineError("name what to measure: --config NAME --random-weights, or --model CHECKPOINT")
    if config and not random_weights:
        raise SightlineError(f"--config {config} has no weights of its own: add --random-weights, or use --model")
    size = None
    if picture:
        try:
            width, height = (int(part) for part in picture.lower().split("x"))
        except ValueError:
            raise SightlineError(f"--picture {picture}: write WIDTHxHEIGHT, for example 896x896") from None
        size = (width, height)
    return {"config": config, "checkpoint": model, "arms": tuple(arms), "picture": size}


def _words(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str, option: str) -> list[int]:
    try:
        numbers = [int(part) for part in _words(text)]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise SightlineError(f"{option} {text}: give positive whole numbers, separated by commas")
    return numbers


def _sizes(text: str) -> list[dict[str, Any]]:
    words = _words(text)
    numbers = ",".join(word for word in words if word != "max")
    fixed: list[dict[str, Any]] = []
    if numbers or "max" not in words:
        fixed = [{"batch": size} for size in _numbers(numbers, "--batch")]
    return fixed + ([{"batch": 1, "grow": True}] if "max" in words else [])


def _measure(requests: list[dict[str, Any]], share_process: bool, out: Path | None) -> None:
    """One process after the other; the card is written after each, so that an interrupted run keeps what it has."""
    from sightline.cost.card import CostCard
    from sightline.cost.measure import measure, separate
    from sightline.cost.request import Request
    from sightline.cost.subject import runnable_arm

    asked = [Request(**fields) for fields in requests]
    for request in asked:  # a request that cannot be served is refused before anything is measured
        for arm in request.arms:
            runnable_arm(arm, request.execution)
    results: list[dict[str, Any]] = []
    for request in asked:
        for part in [request] if share_process else separate(request):
            results.append(measure(part))
            if out is not None:
                CostCard(results).write(out)
    print(CostCard(results).markdown(), end="")
