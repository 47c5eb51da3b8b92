"""The audit sweep against the one-sample procedure: images x probes x arms, both timed in one process.

Sightline encodes an image once, scores both continuations in one forward and many probes in one batch, and queues the
next arm before it reads the last one's answers. One sample at a time is ``sightline.cost.one_sample``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sightline.answering.answerer import Answered
from sightline.answering.scorers import Scorer
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms.arm import Arm
from sightline.auditing.loop import LoopOptions, Prepared, ShardWork, answer_shards
from sightline.auditing.shards import Shard, Task, by_image
from sightline.backbones.execution import use_execution, use_vision_execution
from sightline.core.probe import Probe
from sightline.cost.benchmarks.sweep import SweepRequest
from sightline.cost.machine import PeakMemory, language_flops, vision_flops
from sightline.cost.one_sample import time_one_sample
from sightline.cost.request import Measurement
from sightline.cost.subject import Subject
from sightline.cost.timing.time_ttft import attention_sequences
from sightline.device.kernels import planless


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


def measure_sweep(request: SweepRequest, subject: Subject) -> Iterator[Measurement]:
    arms = [subject.arm(text, request.execution) for text in request.arms]
    # One compilation for all lengths: a sweep has many.
    execution = use_execution(subject.backbone.language, request.execution, dynamic=True)
    use_vision_execution(subject.backbone, execution)
    memory = PeakMemory(subject.device)
    stages: dict[str, float] = {}
    with planless():  # as in an audit
        run_engine(request, subject, arms, evenly(range(request.images), request.shard_images)[0])
        if request.execution != "graph":
            memory.warmed_up()
        setups = len(execution.setup_ms)
        started = time.perf_counter()
        rows, flops = run_engine(request, subject, arms, range(request.images), stages)
        subject.backbone.synchronise()
        engine_ms = (time.perf_counter() - started) * 1e3
    late = sum(execution.setup_ms[setups:])
    used = memory.read()
    use_vision_execution(subject.backbone, use_execution(subject.backbone.language, "eager"))
    each = time_one_sample(request, subject, arms)
    plain_ms, preprocess_ms = sum(each["one_sample"]), sum(each["one_sample_preprocess"])
    engine_rate, plain_rate = len(rows) / engine_ms, len(each["one_sample"]) / plain_ms
    yield Measurement(
        arm=f"{len(arms)} arms",
        batch=len(rows),
        visual_tokens=0,
        kept_tokens=0,
        length=0,
        samples_ms={"engine": [engine_ms], **each, **{name: [ms] for name, ms in stages.items()}},
        flops={"engine": flops},
        memory=used,
        setup_ms=execution.setup_ms[:setups],
        extra={
            "arms": [arm.text for arm in arms],
            "rows": len(rows),
            "engine_rows_per_s": engine_rate * 1e3,
            "one_sample_rows_per_s": plain_rate * 1e3,
            "throughput_ratio": engine_rate / plain_rate,
            "ratio_to_model_alone": engine_rate / plain_rate * (1 - preprocess_ms / plain_ms),
            "setup_inside_ms": late,
        },
    )


def run_engine(
    request: SweepRequest,
    subject: Subject,
    arms: Sequence[Arm],
    images: Sequence[int],
    stages: dict[str, float] | None = None,
) -> tuple[list[Decision], float]:
    """All rows of the sweep and the estimated operations they took; ``stages`` collects milliseconds by stage."""
    rows, spent = run_sweep(request, subject, arms, images, YesNo())
    if stages is not None:
        stages |= spent.stages
    return [_decision(arm, probe, answered) for arm, probe, answered in rows], spent.flops


@dataclass
class Spent:
    """What a sweep took: estimated operations, and milliseconds by stage."""

    flops: float = 0.0
    stages: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("vision", "select", "materialise", "language"), 0.0)
    )


def run_sweep(
    request: SweepRequest, subject: Subject, arms: Sequence[Arm], images: Sequence[int], scorer: Scorer
) -> tuple[list[tuple[Arm, Probe, Answered]], Spent]:
    """All rows of the sweep, read by this scorer as an audit would read them."""
    rows: list[tuple[Arm, Probe, Answered]] = []
    spent = Spent()
    billed = spent.stages
    together = by_image(arms)
    tasks = [
        Task(shard.seen_by(alike[0]), alike) for shard in shards_of(request, subject, images) for alike in together
    ]
    first = [alike[0] for alike in together]
    options = LoopOptions(request.batch_tokens, request.batch_images)
    answerer = subject.answering(scorer)
    for work, arm, answers in answer_shards(answerer, tasks, preparing(subject, len(images)), options):
        if arm in first:
            billed["vision"] += sum(image.vision_ms for image in work.images.values())
            spent.flops += _vision_flops(subject, work)
        rows += [(arm, probe, answered) for probe, answered in zip(work.shard.probes, answers, strict=True)]
        for answered in answers:
            said = int(answered.values.get("answer_tokens", 0))
            spent.flops += language_flops(subject.backbone, answered.trace.sequence_pruned + said)
        billed["select"] += sum(answered.trace.signal_ms + answered.trace.select_ms for answered in answers)
        billed["materialise"] += sum(answered.trace.materialise_ms for answered in answers)
        billed["language"] += sum(answered.language_ms for answered in answers)
        del work  # as in an audit, a shard's images go before the next one's come
    return rows, spent


def _vision_flops(subject: Subject, work: ShardWork) -> float:
    return sum(
        vision_flops(subject.backbone, attention_sequences(subject, item), image.n)
        for item, image in zip(work.prepared.pixels, work.images.values(), strict=True)
    )


def _decision(arm: Arm, probe: Probe, answered: Answered) -> Decision:
    return Decision(arm.text, probe.id, answered.values["margin"], answered.trace.anchors.tobytes())


def shards_of(request: SweepRequest, subject: Subject, images: Sequence[int]) -> list[Shard]:
    """As few shards as the limit allows, as even as possible: equal shards have equal batches, warmed up once."""
    return [
        Shard(
            index=number,
            probes=tuple(subject.probe(image, asked) for image in part for asked in range(request.probes)),
            images=tuple(subject.probe(image) for image in part),
        )
        for number, part in enumerate(evenly(images, request.shard_images))
    ]


def evenly(images: Sequence[int], most: int) -> list[Sequence[int]]:
    count = -(-len(images) // most)
    edges = [len(images) * i // count for i in range(count + 1)]
    return [images[first:last] for first, last in pairwise(edges)]


def preparing(subject: Subject, count: int) -> Callable[[Shard], Prepared]:
    """What the host does to a shard: the drawing of an image stands for its decoding, which the sweep does not time.

    A few are drawn and reused.
    """
    drawn = [subject.image(i) for i in range(min(4, count))]

    def prepare(shard: Shard) -> Prepared:
        images = (drawn[int(probe.image_id) % len(drawn)] for probe in shard.images)
        return Prepared(shard, [subject.backbone.preprocess(image, budget=shard.image_budget) for image in images])

    return prepare
