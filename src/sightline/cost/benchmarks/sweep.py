"""The audit sweep against the one-sample procedure: images x probes x arms, both timed in one process.

Sightline encodes an image once, scores both continuations in one forward and many probes in one batch, and queues the
next arm before it reads the last one's answers. One sample at a time is ``sightline.cost.one_sample``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pydantic import Field

from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result, in_inference_mode, in_words_of
from sightline.cost.request import Measurement, Request
from sightline.cost.spread import Line, Say

if TYPE_CHECKING:
    from sightline.answering.answerer import Answered
    from sightline.answering.scorers import Scorer
    from sightline.arms.arm import Arm
    from sightline.auditing.loop import Prepared, ShardWork
    from sightline.auditing.shards import Shard
    from sightline.core.probe import Probe
    from sightline.cost.subject import Subject


class SweepRequest(Request):
    repeats: int = 1
    """The whole sweep is timed once."""
    profile: bool = False
    images: int = Field(100, ge=1, description="Images of the sweep.")
    probes: int = Field(2, ge=1, description="Probes per image.")
    batch_tokens: int = Field(32768, ge=1, description="Tokens per language batch.")
    batch_images: int = Field(16, ge=1, description="Images per vision batch.")
    shard_images: int = Field(64, ge=1, description="Images scored together, arm by arm.")
    one_sample_rows: int = Field(24, ge=1, description="Rows the one-sample procedure is timed on.")
    """Its rate does not depend on how many."""


@BENCHMARKS.register("sweep")
@in_words_of(__file__)
class Sweep(Benchmark[SweepRequest]):
    name = "sweep"
    request = SweepRequest
    usual_executions = ("compiled",)
    together = True
    planless = True
    main = "engine"

    def measure(self, request: SweepRequest, subject: Subject) -> Iterator[Measurement]:
        from sightline.answering.scorers.yes_no import YesNo
        from sightline.backbones.attention import without_planned_kernels
        from sightline.backbones.execution import use_execution, use_vision_execution
        from sightline.cost.machine import PeakMemory

        arms = [subject.arm(text, request.execution) for text in request.arms]
        # One compilation for all lengths: a sweep has many.
        execution = use_execution(subject.backbone.language, request.execution, dynamic=True)
        use_vision_execution(subject.backbone, execution)
        memory = PeakMemory(subject.device)
        scorer = YesNo()
        with without_planned_kernels():  # as in an audit
            run_sweep(request, subject, arms, evenly(range(request.images), request.shard_images)[0], scorer)
            if request.execution != "graph":
                memory.warmed_up()
            setups = len(execution.setup_ms)
            started = time.perf_counter()
            rows, spent = run_sweep(request, subject, arms, range(request.images), scorer)
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
            samples_ms={"engine": [engine_ms], **each, **{name: [ms] for name, ms in spent.stages.items()}},
            flops={"engine": spent.flops},
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

    def batch_words(self, results: Sequence[Result]) -> str:
        """A sweep batches by tokens: what bounds its batches."""
        request = results[0]["request"]
        return (
            f"{request['images']} images with {request['probes']} probes each; up to {request['batch_images']} images "
            f"and {request['batch_tokens']} tokens at a time"
        )

    def figures(self, point: dict[str, Any], result: Result) -> dict[str, Any]:
        extra = point["extra"]
        rates = ("one_sample_rows_per_s", "throughput_ratio", "ratio_to_model_alone")
        known = {name: extra[name] for name in rates if name in extra}
        return {"rows": extra["rows"], "rows_per_s": extra["engine_rows_per_s"], **known}

    def sentence(self, lines: Sequence[Line], say: Say) -> str:
        best = max(lines, key=lambda line: float(line["throughput_ratio"]))
        ratio = best.get("ratio_to_model_alone")
        known = ratio is not None and ratio == ratio  # a card of several lines may have it for some
        alone = f", or {say(ratio, 'ratio')} without the latter's image processor" if known else ""
        return (
            f"The engine ({best['execution']}) makes {say(best['rows_per_s'], 'number')} rows per second, one sample "
            f"at a time makes {say(best['one_sample_rows_per_s'], 'number')}: "
            f"{say(best['throughput_ratio'], 'ratio')}{alone}."
        )


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
    from sightline.auditing.loop import LoopOptions, answer_shards
    from sightline.auditing.shards import Task, by_image
    from sightline.cost.machine import language_flops

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
    from sightline.cost.machine import attention_sequences, vision_flops

    return sum(
        vision_flops(subject.backbone, attention_sequences(subject.backbone, item), image.n)
        for item, image in zip(work.prepared.pixels, work.images.values(), strict=True)
    )


def shards_of(request: SweepRequest, subject: Subject, images: Sequence[int]) -> list[Shard]:
    """As few shards as the limit allows, as even as possible: equal shards have equal batches, warmed up once."""
    from sightline.auditing.shards import Shard

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
    from sightline.auditing.loop import Prepared

    drawn = [subject.image(i) for i in range(min(4, count))]

    def prepare(shard: Shard) -> Prepared:
        images = (drawn[int(probe.image_id) % len(drawn)] for probe in shard.images)
        return Prepared(shard, [subject.backbone.preprocess(image, budget=shard.image_budget) for image in images])

    return prepare


@in_inference_mode
def time_one_sample(request: SweepRequest, subject: Subject, arms: Sequence[Arm]) -> dict[str, list[float]]:
    """Milliseconds per row from the image in memory on, and what of them is preprocessing.

    Arms take turns so that every arm weighs the same. Warm-up goes through all of them: libraries prepare kernels for
    every new shape, and that is no part of a row.
    """
    from sightline.backbones.base import processor_inputs
    from sightline.cost.one_sample import ANSWERS, one_loss

    backbone = subject.backbone
    image = subject.image(0)
    pixels = {arm.image_budget: backbone.preprocess(image, budget=arm.image_budget) for arm in arms}
    samples: dict[str, list[float]] = {"one_sample": [], "one_sample_preprocess": []}
    for row in range(-_rounds(request.warm_up, arms), _rounds(request.one_sample_rows, arms)):
        arm, probe = arms[row % len(arms)], subject.probe(0, row % request.probes)
        seen = pixels[arm.image_budget]
        backbone.synchronise()
        started, preprocessing = time.perf_counter(), 0.0
        for answer in ANSWERS:
            begun = time.perf_counter()
            values = processor_inputs(backbone.under(seen.options), image)["pixel_values"]
            backbone.synchronise()
            preprocessing += time.perf_counter() - begun
            one_loss(subject, arm, probe, seen, values, answer)
        if row >= 0:
            samples["one_sample"].append((time.perf_counter() - started) * 1e3)
            samples["one_sample_preprocess"].append(preprocessing * 1e3)
    return samples


def _rounds(rows: int, arms: Sequence[Arm]) -> int:
    """At least that many rows, every arm equally often."""
    return -(-rows // len(arms)) * len(arms)
