"""A few probes with images of different sizes, for measurements that take real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sightline.core.probe import Probe
from sightline.probes.probe_file import write_probes

SIZES = ((320, 256), (256, 320), (448, 256), (256, 256))


def write_probe_file(folder: Path, count: int = 6) -> dict[str, Any]:
    """The fields of a request that name what was written."""
    (folder / "images").mkdir(parents=True)
    probes = []
    for number in range(count):
        size = SIZES[number % len(SIZES)]
        pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{number}.png")
        word = "exit " * (number + 1)
        probes.append(
            Probe(
                id=f"p{number}", image=f"{number}.png", image_id=str(number), label="yes", target_text=word.strip(),
                source_text=word.strip(), regions=((0.1, 0.1, 0.4, 0.2),),
                question=f"Is the text {word.strip()} visible in this image? Answer with yes or no.",
            )
        )  # fmt: skip
    write_probes(folder / "probes.jsonl", probes)
    return {"probe_file": str(folder / "probes.jsonl"), "image_folder": str(folder / "images")}
