"""``python -m sightline.cost.measuring_process REQUEST RESULT`` makes one measurement and writes it as JSON.

Its standard input is watched: when that ends, so does the process. ``sightline.cost.measure`` holds the other end.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from sightline.backbones.attention import without_planned_kernels
from sightline.cost.benchmarks.base import BENCHMARKS
from sightline.cost.machine import ceiling, clocks, kernels, machine_facts
from sightline.cost.measure import end_with_parent
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from sightline.device.work import in_words
from sightline.errors import SightlineError


def measure_here(request: Request) -> dict[str, Any]:
    """The measurement with everything that is needed to judge it. The ceiling is taken before and after."""
    benchmark = BENCHMARKS.get(request.kind)()
    if not isinstance(request, benchmark.request):
        raise TypeError(f"{benchmark.name} is asked for with a {benchmark.request.__name__}")
    if (elsewhere := benchmark.elsewhere(request)) is not None:
        return elsewhere
    started = time.perf_counter()
    subject = Subject.of(request)
    device, dtype = subject.device, subject.backbone.language.dtype
    loaded = time.perf_counter()
    # The ceiling comes before anything else is allocated, so that its operands count in no peak.
    before, idle = ceiling(device, dtype), clocks(device)
    points = list(benchmark.measure(request, subject))
    busy = clocks(device)
    after = ceiling(device, dtype)
    language = subject.backbone.language
    with without_planned_kernels() if benchmark.planless else nullcontext():  # as the measurement itself
        used = kernels(language, request.attention, request.execution)
    if benchmark.models_own:
        used.pop("own_causal", None)
    return {
        "request": request.record(),
        "machine": machine_facts(device),
        "dtype": str(dtype).removeprefix("torch."),
        "kernels": used,
        "note": getattr(getattr(language.executor, "execution", None), "note", ""),
        "positions": subject.policy,
        "box_source": request.box_source,
        "weights": "random" if request.config else "checkpoint",
        "picture": list(subject.image_size),
        "probes": subject.real.facts() if subject.real else None,
        "inside_timer": dict(benchmark.inside),
        "ceiling_tflops": max(before["tflops"], after["tflops"]),
        "ceiling": {"before": before, "after": after},
        "clocks": {"before": idle, "after": busy},
        "start_ms": (loaded - started) * 1e3,
        "points": [point.as_dict() for point in points],
    }


def main(arguments: list[str]) -> int:
    asked, answer = Path(arguments[0]), Path(arguments[1])
    try:
        values = json.loads(asked.read_text(encoding="utf-8"))
        result = measure_here(BENCHMARKS.get(values["kind"]).request(**values))
    except SightlineError as error:
        result = {"error": str(error)}
    except (RuntimeError, MemoryError) as error:
        if (line := in_words(error)) is None:
            raise
        result = {"error": line}
    answer.write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    end_with_parent(sys.stdin.fileno())
    torch.set_grad_enabled(False)
    sys.exit(main(sys.argv[1:]))
