"""The general route beside the architecture's own file: the same weights, images, probes and arms, in one process.

    python benchmarks/general_route.py [--config qwen3-vl-8b] [--images 32] [--layers 2] [--side 448]

A model with random weights of a published shape and the embedded reader's vocabulary is served twice:
by the file that Qwen3-VL has (``sightline.backbones.qwen3_vl``) and by ``sightline.backbones.general``, which knows
nothing about it. Printed are milliseconds per image and stage, their ratio, and how far the losses are apart. What
happens once per size, finding cells, has a line of its own. ``--config tiny-qwen3-vl`` runs on a CPU; so do published
widths with ``--layers`` of language layers and images of ``--side`` pixels, in bfloat16 for want of memory.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from benchmarks.large_audit import sized_config

import sightline
from sightline.answering.answerer import Answerer
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms import parse_arm
from sightline.auditing.loop import encode_all
from sightline.backbones import Backbone
from sightline.backbones.execution import use_execution, use_vision_execution
from sightline.backbones.from_transformers import processor_of
from sightline.backbones.general import General
from sightline.backbones.images import ImageOptions
from sightline.backbones.qwen3_vl import Qwen3VL, Qwen3VLOptions
from sightline.core.probe import Probe
from sightline.cost.shapes import shape_named
from sightline.probes.images import open_image
from sightline.probes.probe_file import read_probes

ASSETS = Path(sightline.__file__).parent / "assets"
SCENES = ASSETS / "scenes" / "confirmation"
ARMS = ("full", "target:0.3", "divprune:0.3", "random:0.3")
STAGES = ("preprocess", "vision", "language")


class SameMessages(Qwen3VL):
    """Asked without the paper's system message, which the general route does not know."""

    system = None  # type: ignore[assignment]


def one_model(name: str, device: str, layers: int | None) -> Any:
    """The shape's sizes with the reader's vocabulary ids, initialised on the device."""
    torch.manual_seed(0)
    with torch.device(device):
        return transformers.Qwen3VLForConditionalGeneration._from_config(
            sized_config(name, layers),
            dtype=torch.float32 if device == "cpu" and name.startswith("tiny") else torch.bfloat16,
            attn_implementation="sdpa",
        )


def both(name: str, device: str, layers: int | None, side: int | None) -> dict[str, Backbone]:
    """The model by its own file and by the general route, images enlarged to the shape's usual area.

    Each has a copy of the weights: a faster execution of one joins projections and renames attention.
    """
    models = [one_model(name, device, layers) for _ in range(2)]
    processor = processor_of(ASSETS / "reader", models[0].config)
    width, height = (side, side) if side else shape_named(name).image
    processor.image_processor.size = {"shortest_edge": width * height, "longest_edge": width * height}
    own = SameMessages(models[0], processor.tokenizer, processor.image_processor, Qwen3VLOptions())
    return {"own file": own, "general": General(models[1], processor.tokenizer, processor, ImageOptions())}


def timed(work: Callable[[], Any], backbone: Backbone) -> tuple[Any, float]:
    backbone.synchronise()
    started = time.perf_counter()
    done = work()
    backbone.synchronise()
    return done, (time.perf_counter() - started) * 1e3


def measure(backbone: Backbone, probes: list[Probe], batch: int) -> tuple[dict[str, float], list[float]]:
    """Milliseconds of every stage over all images, and all losses."""
    images = [open_image(SCENES / "images", probe.image) for probe in probes]
    pixels, preprocess = timed(lambda: [backbone.preprocess(image) for image in images], backbone)
    encoded, vision = timed(lambda: encode_all(backbone, pixels, batch_images=batch), backbone)
    answerer = Answerer(backbone, YesNo(), positions="preserve")

    def answer() -> list[float]:
        # All arms are launched before one is read, as an audit does.
        collects = [answerer.launch(parse_arm(arm), probes, encoded, 65536) for arm in ARMS]
        return [float(each.values["margin"]) for collect in collects for each in collect()]

    margins, language = timed(answer, backbone)
    return dict(zip(STAGES, (preprocess, vision, language), strict=True)), margins


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="qwen3-vl-8b", help="qwen3-vl-8b or tiny-qwen3-vl")
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--batch-images", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--execution", default="eager")
    parser.add_argument("--layers", type=int, help="Language layers, where not all are wanted.")
    parser.add_argument("--side", type=int, help="Pixels along the side of an image, where not the shape's own.")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    backbones = both(options.config, device, options.layers, options.side)
    seen: dict[str, Probe] = {}
    for probe in read_probes(SCENES / "probes.jsonl").probes:
        seen.setdefault(probe.image, probe)
    probes = list(seen.values())[: options.images]
    size = open_image(SCENES / "images", probes[0].image).size
    count, once = timed(lambda: backbones["general"].token_count(size), backbones["general"])
    print(
        f"{options.config} on {device}, {options.execution}: {len(probes)} images of {count} tokens, {len(ARMS)} arms"
    )
    decoder = backbones["general"].language
    print(f"the general route's decoder: {getattr(decoder, 'reason', 'our loop over its layers')}")
    print(f"cells, found once for {size[0]} x {size[1]} by the general route: {once / 1e3:.2f} s")
    best: dict[str, dict[str, float]] = {}
    margins: dict[str, list[float]] = {}
    for backbone in backbones.values():
        use_vision_execution(backbone, use_execution(backbone.language, options.execution, dynamic=True), dynamic=True)
        measure(backbone, probes, options.batch_images)
    for _ in range(options.repeats):
        for name, backbone in backbones.items():
            times, margins[name] = measure(backbone, probes, options.batch_images)
            kept = best.setdefault(name, times)
            best[name] = {stage: min(kept[stage], times[stage]) for stage in STAGES}
    print(f"{'ms per image':14}" + "".join(f"{name:>12}" for name in best) + f"{'ratio':>8}")
    for stage in (*STAGES, "all"):
        own, general = (
            (sum(times.values()) if stage == "all" else times[stage]) / len(probes) for times in best.values()
        )
        print(f"{stage:14}{own:12.2f}{general:12.2f}{general / own:8.2f}")
    apart = max(abs(a - b) for a, b in zip(*margins.values(), strict=True))
    print(f"largest difference of a margin: {apart:.2e}")


if __name__ == "__main__":
    main()
