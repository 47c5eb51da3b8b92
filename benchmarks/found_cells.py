"""How long cells take to find, and how far they are from the declared ones: towers in their real sizes, random weights.

    python benchmarks/found_cells.py [--device cuda] [--dtype bfloat16] [--shape llava-1.5-7b ...]

Vision towers and projectors are as large as the published ones; of the language model, which is never called, next to
nothing is made. Every shape is found twice and the second time counts: the first one also loads kernels. The image
processor runs on the host's CPU whatever the device, once for each of its ramps; how long that took is said apart.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor

from sightline.backbones.found_cells import find_cells
from sightline.backbones.images import Pixels
from sightline.backbones.towered import Towered
from sightline.cost.shapes import SHAPES, random_backbone

IMAGES = {"llava-1.5-7b": (1024, 768), "qwen3-vl-8b": (1024, 1024), "internvl3.5-8b": (1600, 1200)}
"""Shapes, and (width, height) of an image that makes 576, 1,024 and 3,328 tokens."""
UNUSED = {"num_hidden_layers": 1, "intermediate_size": 64, "vocab_size": 64}
"""What remains of the language model."""


def tower_of(name: str, device: torch.device, dtype: torch.dtype) -> Towered:
    shape = SHAPES[name]
    config = {**shape.config, "text_config": {**shape.config["text_config"], **UNUSED}}
    SHAPES[f"tower of {name}"] = replace(shape, config=config)
    backbone = random_backbone(f"tower of {name}", device=device, dtype=dtype)
    assert isinstance(backbone, Towered)
    return backbone


def measured(backbone: Towered, size: tuple[int, int]) -> tuple[int, float, float, float]:
    """Tokens, seconds in all, of these in the image processor, largest difference in source pixels."""
    spent = 0.0

    def prepare(image: Image.Image) -> Mapping[str, Tensor]:
        nonlocal spent
        started = time.perf_counter()
        made = backbone.image_processor(image, return_tensors="pt", **backbone.processor_arguments())
        spent += time.perf_counter() - started
        return {name: made[name] for name in ("pixel_values", "image_grid_thw") if name in made}

    def features(inputs: Mapping[str, Tensor]) -> Tensor:
        return torch.cat(list(backbone.model.get_image_features(**inputs).pooler_output)).flatten(0, -2)

    found = find_cells(size, prepare, features, backbone.model)
    declared, _ = backbone.cells_of(Pixels(torch.empty(0), backbone.patch_grid(*size[::-1]), size, 0.0))
    apart = np.abs(found.cells - np.clip(declared, 0, 1)) * np.tile(size, 2)
    return len(declared), found.seconds, spent, float(apart.max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", type=torch.device)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--shape", nargs="+", default=list(IMAGES), choices=list(IMAGES))
    options = parser.parse_args()
    machine = torch.cuda.get_device_name() if options.device.type == "cuda" else f"{torch.get_num_threads()} threads"
    table = Table(
        "tower of", "image", "tokens", "seconds", "in the processor", "source pixels apart",
        title=f"{options.device}, {machine}, {options.dtype}",
    )  # fmt: skip
    for name in options.shape:
        backbone = tower_of(name, options.device, getattr(torch, options.dtype))
        size = IMAGES[name]
        measured(backbone, size)
        tokens, seconds, spent, apart = measured(backbone, size)
        table.add_row(name, "{} x {}".format(*size), f"{tokens:,}", f"{seconds:.1f}", f"{spent:.1f}", f"{apart:.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
