"""The audit sweep against the one-sample procedure: images x probes x arms, both timed in one process.

Sightline encodes a picture once, scores both continuations in one forward and many probes in one batch, and queues the
next arm before it reads the last one's answers. One sample at a time is ``sightline.cost.one_sample``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

from sightline.answering.encoding import encode_all
from sightline.answering.launching import Collect, Scored, launch_arm
from sightline.answering.select import all_needs
from sightline.arms.arm import Arm
from sightline.backbones.execution import use_execution
from sightline.backbones.pixels import Pixels
from sightline.backbones.vision_execution import use_vision_execution
from sightline.core.prefix import Encoded
from sightline.core.probe import Probe
from sightline.cost.benchmarks.sweep import SweepRequest
from sightline.cost.flops import language_flops, vision_flops
from sightline.cost.machine import PeakMemory
from sightline.cost.measurement import Measurement
from sightline.cost.one_sample import time_one_sample
from sightline.cost.subject import Subject
from sightline.cost.timing.ttft import attention_sequences
from sightline.device.kernels.causal import planless
from sightline.device.pipeline import one_ahead, prepared_ahead


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
        run_engine(request, subject, arms, shards_of(request, range(request.images))[0])
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
    needs = all_needs(arms)
    rows: list[Decision] = []
    flops = 0.0
    billed = stages if stages is not None else {}
    for name in ("vision", "select", "materialise", "language"):
        billed.setdefault(name, 0.0)

    def work() -> Iterator[tuple[tuple[ShardWork, Arm], Callable[[], Collect]]]:
        for shard, pixels in preprocessed(request, subject, images):
            here = ShardWork(request, subject, shard, needs, pixels)
            for arm in arms:
                yield (here, arm), partial(here.launch, arm)

    for (here, arm), scored in one_ahead(work()):
        if arm is arms[0]:
            billed["vision"] += sum(picture.vision_ms for picture in here.encoded)
            flops += here.vision_flops()
        rows += [_decision(arm, probe, result) for probe, result in zip(here.probes, scored, strict=True)]
        flops += sum(language_flops(subject.backbone, result.sequence_pruned) for result in scored)
        billed["select"] += sum(result.signal_ms + result.select_ms for result in scored)
        billed["materialise"] += sum(result.materialise_ms for result in scored)
        billed["language"] += sum(result.language_ms for result in scored)
        del here  # as in an audit, a shard's pictures go before the next one's come
    return rows, flops


@dataclass
class ShardWork:
    """Some images of the sweep, encoded when the first arm is launched and shared by all arms."""

    request: SweepRequest
    subject: Subject
    images: Sequence[int]
    needs: frozenset[str]
    pixels: Future[list[Pixels]]

    @cached_property
    def encoded(self) -> list[Encoded]:
        return encode_all(self.subject.backbone, self.pixels.result(), self.needs, self.request.batch_images)

    @cached_property
    def probes(self) -> list[Probe]:
        return [self.subject.probe(image, number) for image in self.images for number in range(self.request.probes)]

    def launch(self, arm: Arm) -> Collect:
        pictures = [picture for picture in self.encoded for _ in range(self.request.probes)]
        subject = self.subject
        return launch_arm(subject.step, arm, self.probes, pictures, subject.policy, self.request.batch_tokens)

    def vision_flops(self) -> float:
        return sum(
            vision_flops(self.subject.backbone, attention_sequences(self.subject, item), picture.n)
            for item, picture in zip(self.pixels.result(), self.encoded, strict=True)
        )


def _decision(arm: Arm, probe: Probe, result: Scored) -> Decision:
    return Decision(arm.text, probe.id, result.answer.loss_no - result.answer.loss_yes, result.anchors.tobytes())


def shards_of(request: SweepRequest, images: Sequence[int]) -> list[Sequence[int]]:
    """As few shards as the limit allows, as even as possible: equal shards have equal batches, warmed up once."""
    count = -(-len(images) // request.shard_images)
    edges = [len(images) * i // count for i in range(count + 1)]
    return [images[first:last] for first, last in pairwise(edges)]


def preprocessed(
    request: SweepRequest, subject: Subject, images: Sequence[int]
) -> Iterator[tuple[Sequence[int], Future[list[Pixels]]]]:
    """Shards of pictures, the next one prepared on the host while the current one is scored."""
    shards = shards_of(request, images)
    # The drawing of a picture stands for its decoding, which the sweep does not time; a few are drawn and reused.
    drawn = [subject.picture(i) for i in range(min(4, len(images)))]

    def work(shard: Sequence[int]) -> list[Pixels]:
        return [subject.backbone.preprocess(drawn[i % len(drawn)]) for i in shard]

    return prepared_ahead(shards, work)
