"""What measurements are of: a few probes with images of different sizes, and what a GPU machine would hand back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from sightline.answering.scorers.yes_no import YesNo
from sightline.arms import Arm
from sightline.core.probe import Probe
from sightline.cost.benchmarks.prefill import PrefillRequest
from sightline.cost.benchmarks.sweep import SweepRequest, run_sweep
from sightline.cost.request import Measurement
from sightline.cost.subject import Subject
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


class Decision(NamedTuple):
    """What a row of a sweep decides: the answer and which cells were kept."""

    arm: str
    probe: str
    margin: float
    kept: bytes

    @property
    def yes(self) -> bool:
        return self.margin >= 0.0


def decisions(
    request: SweepRequest, subject: Subject, arms: Sequence[Arm], images: int
) -> tuple[list[Decision], float]:
    """All rows of a sweep of yes/no questions, and the estimated operations they took."""
    rows, spent = run_sweep(request, subject, arms, range(images), YesNo())
    return [
        Decision(arm.text, probe.id, answered.values["margin"], answered.trace.anchors.tobytes())
        for arm, probe, answered in rows
    ], spent.flops


GIB = 2**30


def result(execution: str, arm: str, samples: list[float], incremental: int = GIB, batch: int = 32) -> dict[str, Any]:
    """What a GPU worker would hand back."""
    request = PrefillRequest(kind="prefill", config="qwen3-vl-8b", arms=(arm,), execution=execution, batch=batch)
    memory = {
        "allocated_peak": 20 * GIB, "reserved_peak": 22 * GIB,
        "allocated_incremental": incremental, "reserved_incremental": 2 * incremental,
    }  # fmt: skip
    point = Measurement(arm, batch, 784, 157, 202, {"prefill": samples}, {"prefill": 4e14}, memory, [1500.0])
    clock = {"clocks.sm": 1980.0}
    return {
        "request": request.as_dict(),
        "machine": {
            "device": "cuda",
            "name": "NVIDIA H200",
            "threads": 8,
            "torch": "2",
            "transformers": "5",
            "python": "3.12",
        },
        "dtype": "bfloat16",
        "kernels": {"attention": "sdpa", "execution": execution, "scaled_dot_product": {}},
        "note": "",
        "positions": "preserve",
        "box_source": "annotation",
        "weights": "random",
        "picture": [896, 896],
        "inside_timer": {"prefill": "all language layers"},
        "ceiling_tflops": 800.0,
        "ceiling": {"before": {"side": 8192}},
        "clocks": {"before": clock, "after": clock},
        "points": [point.as_dict()],
    }
