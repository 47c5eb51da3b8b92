"""The language layers over a batch of prefixes: time, throughput, memory, up to the largest batch that fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from sightline.answering.select import all_needs
from sightline.arms.arm import Arm
from sightline.backbones.execution import Execution, use_execution
from sightline.core.prefix import Encoded, Prefix
from sightline.cost.benchmarks.prefill import PrefillRequest
from sightline.cost.flops import language_flops
from sightline.cost.machine import PeakMemory
from sightline.cost.measurement import Measurement
from sightline.cost.profile import profiled
from sightline.cost.subject import DISTINCT, Subject
from sightline.device.memory import free_memory, is_out_of_memory
from sightline.device.stopwatch import Stopwatch


def measure_prefill(request: PrefillRequest, subject: Subject) -> Iterator[Measurement]:
    arms = [subject.arm(text, request.execution) for text in request.arms]
    execution = use_execution(subject.backbone.language, request.execution, dynamic=False, bucket=None)
    backbone = subject.backbone
    needs = all_needs(arms)
    pictures = [backbone.preprocess(subject.picture(i)) for i in range(min(DISTINCT, request.batch))]
    encoded = [backbone.encode([pixels], needs)[0] for pixels in pictures]
    for arm in arms:
        batch = request.batch
        while True:
            point: Measurement | None = None
            try:
                point = one_batch(request, subject, execution, arm, encoded, batch)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            if point is None:
                free_memory()
                prefix = subject.prefix(encoded[0], arm, subject.probe(0))
                yield Measurement(arm.text, batch, *_sizes(arm, encoded[0], prefix), {}, extra={"out_of_memory": True})
                break
            yield point
            batch *= 2
            if not request.grow or batch > request.largest:
                break


@torch.inference_mode()
def one_batch(
    request: PrefillRequest, subject: Subject, execution: Execution, arm: Arm, encoded: list[Encoded], batch: int
) -> Measurement:
    language = subject.backbone.language
    distinct = [subject.prefix(item, arm, subject.probe(i)) for i, item in enumerate(encoded)]
    order = [i % len(distinct) for i in range(batch)]
    prefixes = [distinct[i] for i in order]
    pictures = [encoded[i] for i in order]
    device = subject.device
    samples: dict[str, list[float]] = {"collate": [], "prefill": []}
    memory = PeakMemory(device)
    setups = len(execution.setup_ms)
    pairs = []
    for repeat in range(request.warm_up + request.repeats):
        cutter = subject.cutter(arm, prefixes, pictures)
        collating = Stopwatch(device)
        collated = language.collate(prefixes)
        collating.stop()
        running = Stopwatch(device)
        language.run(replace(collated), cutter)
        running.stop()
        if repeat >= request.warm_up:
            pairs.append((collating, running))
        elif repeat == request.warm_up - 1 and request.execution != "graph":
            memory.warmed_up()
    for collating, running in pairs:
        samples["collate"].append(collating.ms)
        samples["prefill"].append(running.ms)
    used = memory.read()

    def once() -> None:
        language.run(language.collate(prefixes), subject.cutter(arm, prefixes, pictures))

    n, kept, length = _sizes(arm, encoded[0], distinct[0])
    layers = _layer_lengths(subject, arm, n, length)
    depth = len(language.layers)
    flops = sum(language_flops(subject.backbone, each) for each in layers) / depth * batch
    return Measurement(
        arm=arm.text,
        batch=batch,
        visual_tokens=n,
        kept_tokens=kept,
        length=length,
        samples_ms=samples,
        flops={"prefill": flops},
        memory=used,
        setup_ms=execution.setup_ms[setups:],
        extra={"profile": profiled(once, device)} if request.profile else {},
    )


def _sizes(arm: Arm, encoded: Encoded, prefix: Prefix) -> tuple[int, int, int]:
    """Visual tokens, how many of them are kept, positions of the prefix."""
    return encoded.n, arm.budget.resolve(encoded.n) if arm.inside else prefix.k, prefix.embeds.shape[0]


def _layer_lengths(subject: Subject, arm: Arm, n: int, length: int) -> list[int]:
    """Positions that each layer reads; all the same unless the method prunes between layers."""
    depth = len(subject.backbone.language.layers)
    if not arm.inside:
        return [length] * depth
    from sightline.answering.launching import layer_counts

    schedule = arm.selector.schedule(n, arm.budget.resolve(n), depth)  # type: ignore[union-attr]
    return [length - n + count for count in layer_counts(n, schedule, depth)]
