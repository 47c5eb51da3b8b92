"""The audit sweep against the one-sample procedure: images x probes x arms, both timed in one process.

One sample at a time means: for every probe, arm and continuation the picture goes through the vision tower again and
the language model reads one sequence, eagerly. Sightline encodes a picture once, scores both continuations in one
forward and many probes in one batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from sightline.arms import Arm
from sightline.backbones.base import Pixels
from sightline.cost.flops import language_flops, vision_flops
from sightline.cost.machine import PeakMemory
from sightline.cost.request import Point, Request
from sightline.cost.subject import Subject
from sightline.cost.ttft import attention_sequences
from sightline.engine.encoding import encode_all
from sightline.engine.execution import use_execution
from sightline.engine.scoring import Scored, score_arm
from sightline.materialise import materialise
from sightline.selecting import all_needs
from sightline.types import Encoded, Probe

INSIDE = {
    "engine": "whole sweep: preprocessing (overlapped on the host), vision once per image, selection, materialising, "
    "scoring both continuations in batches; start-up (imports, weights, compiling, one warm-up shard) excluded",
    "one_sample": "per row, once per continuation: vision, selection, materialising and a batch-1 eager forward; "
    "preprocessing excluded",
}


@dataclass(frozen=True)
class Decision:
    """What a row decides: the answer and which cells were kept."""

    arm: str
    probe: str
    margin: float
    kept: bytes

    @property
    def yes(self) -> bool:
        return self.margin >= 0.0


def measure_sweep(request: Request, subject: Subject) -> Iterator[Point]:
    arms = [subject.arm(text, request.execution) for text in request.arms]
    execution = use_execution(subject.backbone.language, request.execution)
    memory = PeakMemory(subject.device)
    run_engine(request, subject, arms, range(request.batch_images))
    if request.execution != "graph":
        memory.warmed_up()
    setups = len(execution.setup_ms)
    stages: dict[str, float] = {}
    started = time.perf_counter()
    rows, flops = run_engine(request, subject, arms, range(request.images), stages)
    subject.backbone.synchronise()
    engine_ms = (time.perf_counter() - started) * 1e3
    late = sum(execution.setup_ms[setups:])
    used = memory.read()
    use_execution(subject.backbone.language, "eager")
    each = time_one_sample(request, subject, arms)
    engine_rate, plain_rate = len(rows) / engine_ms, len(each) / sum(each)
    yield Point(
        arm=f"{len(arms)} arms",
        batch=len(rows),
        visual_tokens=0,
        kept_tokens=0,
        length=0,
        samples_ms={"engine": [engine_ms], "one_sample": each, **{name: [ms] for name, ms in stages.items()}},
        flops={"engine": flops},
        memory=used,
        setup_ms=execution.setup_ms[:setups],
        extra={
            "arms": [arm.text for arm in arms],
            "rows": len(rows),
            "engine_rows_per_s": engine_rate * 1e3,
            "one_sample_rows_per_s": plain_rate * 1e3,
            "throughput_ratio": engine_rate / plain_rate,
            "setup_inside_ms": late,
        },
    )


def run_engine(
    request: Request,
    subject: Subject,
    arms: Sequence[Arm],
    images: Sequence[int],
    stages: dict[str, float] | None = None,
) -> tuple[list[Decision], float]:
    """All rows of the sweep and the estimated operations they took; ``stages`` collects milliseconds by stage."""
    needs = all_needs(arms)
    rows: list[Decision] = []
    flops = 0.0
    billed = stages if stages is not None else {}
    for name in ("vision", "select", "materialise", "language"):
        billed.setdefault(name, 0.0)
    for shard, pixels in preprocessed(request, subject, images):
        encoded = encode_all(subject.backbone, pixels, needs, request.batch_images)
        billed["vision"] += sum(item.vision_ms for item in encoded)
        flops += sum(
            vision_flops(subject.backbone, attention_sequences(subject, item), picture.n)
            for item, picture in zip(pixels, encoded, strict=True)
        )
        pairs = [(subject.probe(i, p), e) for i, e in zip(shard, encoded, strict=True) for p in range(request.probes)]
        probes: list[Probe] = [probe for probe, _ in pairs]
        pictures: list[Encoded] = [picture for _, picture in pairs]
        for arm in arms:
            scored = score_arm(subject.step, arm, probes, pictures, subject.policy, request.batch_tokens)
            rows += [_decision(arm, probe, result) for probe, result in zip(probes, scored, strict=True)]
            flops += sum(language_flops(subject.backbone, result.sequence_pruned) for result in scored)
            billed["select"] += sum(result.signal_ms + result.select_ms for result in scored)
            billed["materialise"] += sum(result.materialise_ms for result in scored)
            billed["language"] += sum(result.language_ms for result in scored)
    return rows, flops


def _decision(arm: Arm, probe: Probe, result: Scored) -> Decision:
    return Decision(arm.text, probe.id, result.answer.loss_no - result.answer.loss_yes, result.anchors.tobytes())


def preprocessed(
    request: Request, subject: Subject, images: Sequence[int]
) -> Iterator[tuple[Sequence[int], list[Pixels]]]:
    """Shards of pictures, the next one prepared on the host while the current one is scored."""
    shards = [images[i : i + request.batch_images] for i in range(0, len(images), request.batch_images)]
    # The drawing of a picture stands for its decoding, which the sweep does not time; a few are drawn and reused.
    drawn = [subject.picture(i) for i in range(min(4, len(images)))]

    def work(shard: Sequence[int]) -> list[Pixels]:
        return [subject.backbone.preprocess(drawn[i % len(drawn)]) for i in shard]

    with ThreadPoolExecutor(max_workers=1) as pool:
        upcoming: Future[list[Pixels]] | None = None
        for number, shard in enumerate(shards):
            current = upcoming or pool.submit(work, shard)
            upcoming = pool.submit(work, shards[number + 1]) if number + 1 < len(shards) else None
            yield shard, current.result()


@torch.inference_mode()
def time_one_sample(request: Request, subject: Subject, arms: Sequence[Arm]) -> list[float]:
    """Milliseconds per row of the one-sample procedure, arms in turn so that every arm weighs the same."""
    backbone = subject.backbone
    pixels = backbone.preprocess(subject.picture(0))
    rows = -(-request.one_sample_rows // len(arms)) * len(arms)
    samples = []
    for row in range(-request.warm_up, rows):
        arm, probe = arms[row % len(arms)], subject.probe(0, row % request.probes)
        backbone.synchronise()
        started = time.perf_counter()
        for _ in ("yes", "no"):
            (encoded,) = backbone.encode([pixels], arm.selector.needs)
            if arm.inside:
                score_arm(subject.step, arm, [probe], [encoded], subject.policy, 0)
                continue
            selection = subject.step(encoded, subject.prompt, probe, arm).selection
            prefix = materialise(backbone, encoded, subject.prompt, selection, subject.policy)
            backbone.language.score([prefix])
        backbone.synchronise()
        if row >= 0:
            samples.append((time.perf_counter() - started) * 1e3)
    return samples
