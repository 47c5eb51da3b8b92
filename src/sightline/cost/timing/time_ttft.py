"""One image to the first token of the answer, everything included, stage by stage; then decoding."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import fmean
from typing import Any

import numpy as np
import torch
from PIL import Image

from sightline.answering.arm_pass import ArmPass
from sightline.arms.arm import Arm
from sightline.backbones.execution import CapturedVision, Execution, use_execution, use_vision_execution
from sightline.backbones.images import Pixels
from sightline.backbones.towered import Towered
from sightline.boxes.detection import boxes_of
from sightline.boxes.detectors import DETECTORS, detector_named
from sightline.boxes.sources import check_source, reads_boxes
from sightline.core.prefix import Encoded, Prefix
from sightline.cost.benchmarks.ttft import TtftRequest
from sightline.cost.machine import PeakMemory, language_flops, profiled, vision_flops
from sightline.cost.request import Measurement
from sightline.cost.subject import ForgetfulClip, Subject
from sightline.cost.timing.time_stock import measure_stock, untimed
from sightline.device.transfer import Stopwatch

HOST = torch.device("cpu")


def measure_ttft(request: TtftRequest, subject: Subject) -> Iterator[Measurement]:
    check_source(request.box_source)
    if request.execution == "stock":
        yield from measure_stock(request, subject)
        return
    execution = use_execution(subject.backbone.language, request.execution, dynamic=False, bucket=None)
    use_vision_execution(subject.backbone, execution, dynamic=False)
    for text in request.arms:
        yield _one_arm(request, subject, execution, subject.arm(text, request.execution))


def _one_arm(request: TtftRequest, subject: Subject, execution: Execution, arm: Arm) -> Measurement:
    backbone = subject.backbone
    images = [subject.image(i) for i in range(subject.distinct(2))]
    setups = len(execution.setup_ms)
    memory = PeakMemory(subject.device)
    if request.execution == "graph" and isinstance(subject.step.clip, ForgetfulClip):
        subject.step.clip.capture()
    boxed = reads_boxes(arm.selector)
    detects = request.box_source.partition(":")[0] in DETECTORS and boxed
    detector = detector_named(request.box_source)() if detects else None
    path = Path(subject, arm, request.execution == "graph", detector)
    path.capture(images[0])
    taken: list[dict[str, float]] = []
    work: list[Work] = []
    warm_up = untimed(request, subject)
    for repeat in range(warm_up + request.repeats):
        number = repeat % len(images)
        stages = path.first_token(images[number], number)
        if repeat >= warm_up:
            taken.append(stages)
            work.append(path.work)
        elif repeat == warm_up - 1 and request.execution != "graph":
            memory.warmed_up()
    used = memory.read()
    samples = {stage: [each[stage] for each in taken] for stage in taken[0]}
    for _ in range(request.repeats if request.decode else 0):
        for count, ms in path.decoding(list(request.decode)).items():
            samples.setdefault(f"decode_{count}", []).append(ms)
    vision = fmean(vision_flops(backbone, each.patches, each.encoded_tokens) for each in work)
    prefill = fmean(language_flops(backbone, each.length) for each in work)
    return Measurement(
        arm=arm.text,
        batch=1,
        visual_tokens=round(fmean(each.visual_tokens for each in work)),
        kept_tokens=round(fmean(each.kept_tokens for each in work)),
        length=round(fmean(each.length for each in work)),
        samples_ms=samples,
        flops={"vision": vision, **({} if arm.inside else {"prefill": prefill})},
        memory=used,
        setup_ms=execution.setup_ms[setups:],
        extra={
            "reads_boxes": boxed,
            **({"profile": profiled(lambda: path.first_token(images[0]), subject.device)} if request.profile else {}),
        },
    )


def attention_sequences(subject: Subject, pixels: Pixels) -> list[int]:
    """Patches that attend to each other in the vision tower: one sequence per image, or per tile."""
    backbone = subject.backbone
    if not isinstance(backbone, Towered):  # nobody has said how its tower attends
        return []
    tiles, rows, columns = pixels.grid
    return [rows * columns + backbone.class_tokens] * tiles


@dataclass(frozen=True)
class Work:
    """How much of it one image makes."""

    patches: list[int]
    """Of each sequence in the vision tower."""
    encoded_tokens: int
    visual_tokens: int
    """Of the image as it usually is, where the arm shows a smaller one."""
    kept_tokens: int
    length: int


@dataclass
class Path:
    """The way of one image through one arm."""

    subject: Subject
    arm: Arm
    captures: bool
    """Whether vision is replayed as a graph, one per size of image."""
    detector: Any
    encoded: Encoded = field(init=False)
    prefix: Prefix = field(init=False)
    passed: ArmPass = field(init=False)
    work: Work = field(init=False)
    _captured: dict[tuple[int, int], CapturedVision] = field(init=False, default_factory=dict)

    def capture(self, image: Image.Image) -> CapturedVision | None:
        """What encodes images of this size; captured when the first of them comes, which no sample contains."""
        backbone = self.subject.backbone
        if self.captures and isinstance(backbone, Towered) and image.size not in self._captured:
            sample = backbone.preprocess(image, budget=self.arm.image_budget)
            self._captured[image.size] = CapturedVision(backbone, sample, self.arm.selector.needs)
        return self._captured.get(image.size)

    @torch.inference_mode()
    def first_token(self, image: Image.Image, number: int = 0) -> dict[str, float]:
        """Milliseconds of every stage, for the question about the image of that number.

        Only methods that look at values, and the last read, wait for the device.
        """
        subject, backbone, device = self.subject, self.subject.backbone, self.subject.device
        probe, captured = subject.probe(number), self.capture(image)
        stages: dict[str, Stopwatch] = {}
        started = time.perf_counter()
        stages["preprocess"] = Stopwatch(HOST)
        pixels = backbone.preprocess(image, captured.staging if captured else None, budget=self.arm.image_budget)
        stages["preprocess"].stop()
        if self.detector is not None:
            stages["detector"] = Stopwatch(HOST)
            boxes, _ = boxes_of(self.detector.find(np.asarray(image)), *image.size)
            stages["detector"].stop()
            probe = replace(probe, boxes=boxes)
        stages["vision"] = Stopwatch(device)
        if captured is not None:
            encoded = captured(pixels)
        else:
            (encoded,) = backbone.encode([pixels], self.arm.selector.needs)
        stages["vision"].stop()
        passed = subject.over(self.arm, [encoded], [probe])
        stages["materialise"] = Stopwatch(device)
        prefix = passed.prefix(0)
        stages["materialise"].stop()
        cutter = passed.cutter([0], [prefix])
        stages["prefill"] = Stopwatch(device)
        language = backbone.language
        hidden = language.read([prefix], cutter)
        stages["prefill"].stop()
        stages["first_token"] = Stopwatch(device)
        token = language.head(language.norm(hidden[0, -1])).argmax()
        stages["first_token"].stop()
        int(token)
        total = (time.perf_counter() - started) * 1e3
        self.encoded, self.prefix, self.passed = encoded, prefix, passed
        (trace,) = passed.traces()
        self.work = Work(
            attention_sequences(subject, pixels), encoded.n, encoded.full_n, trace.k, prefix.embeds.shape[0]
        )
        measured = {name: watch.ms for name, watch in stages.items()}
        measured["prefill"] -= trace.inside_ms
        return {**measured, "signals": trace.signal_ms, "select": trace.select_ms, "total": total}

    def decoding(self, counts: list[int]) -> dict[int, float]:
        """Milliseconds from the first token to that many tokens more."""
        cutter = self.passed.cutter([0], [self.prefix])
        tokens = self.subject.backbone.language.decode(self.prefix, cutter)
        next(tokens)
        started = time.perf_counter()
        elapsed: dict[int, float] = {}
        for produced, _ in enumerate(islice(tokens, max(counts)), start=1):
            if produced in counts:
                elapsed[produced] = (time.perf_counter() - started) * 1e3
        return elapsed
