"""What a user has without Sightline: the checkpoint's image processor and the model's own eager forward."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import fmean

import torch

from sightline.arms.arm import Arm
from sightline.backbones.base import model_inputs
from sightline.cost.benchmarks.ttft import TtftRequest
from sightline.cost.machine import PeakMemory, language_flops
from sightline.cost.request import Measurement
from sightline.cost.subject import Subject
from sightline.errors import SightlineError


def measure_stock(request: TtftRequest, subject: Subject) -> Iterator[Measurement]:
    """From the image in memory to the first token by transformers alone; it can only read the full prefix."""
    backbone = subject.backbone
    for text in request.arms:
        arm: Arm = subject.arm(text, "eager")
        if arm.selector.name != "full":
            raise SightlineError(f"--execution stock runs the model's own forward, which cannot prune: drop {arm.text}")
        asked = range(subject.distinct(2))
        images = [subject.image(i) for i in asked]
        prompts = [subject.prompt_about(i) for i in asked]
        memory = PeakMemory(subject.device)
        samples: dict[str, list[float]] = {"preprocess": [], "model": [], "total": []}
        warm_up = untimed(request, subject)
        for repeat in range(warm_up + request.repeats):
            i = repeat % len(images)
            ids = (*prompts[i].head, *prompts[i].tail)
            started = time.perf_counter()
            with torch.inference_mode():
                inputs = model_inputs(backbone, images[i], ids, len(prompts[i].head))
                prepared = time.perf_counter()
                int(backbone.model(**inputs, logits_to_keep=1).logits[0, -1].argmax())
            ended = time.perf_counter()
            if repeat >= warm_up:
                samples["preprocess"].append((prepared - started) * 1e3)
                samples["model"].append((ended - prepared) * 1e3)
                samples["total"].append((ended - started) * 1e3)
            elif repeat == warm_up - 1:
                memory.warmed_up()
        n = round(fmean(backbone.token_count(image.size) for image in images))
        length = round(fmean(len(prompt.head) + len(prompt.tail) for prompt in prompts)) + n
        flops = {"prefill": language_flops(backbone, length)}
        yield Measurement(arm.text, 1, n, n, length, samples, flops, memory.read())


def untimed(request: TtftRequest, subject: Subject) -> int:
    """Passes before the first sample: real images differ in shape, and libraries prepare kernels for every new one."""
    return max(request.warm_up, len(subject.real)) if subject.real else request.warm_up
