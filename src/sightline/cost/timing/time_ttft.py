"""One image to the first token of the answer, everything included, stage by stage; then decoding."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from PIL import Image

from sightline.answering.arm_pass import ArmPass
from sightline.arms.arm import Arm
from sightline.backbones.execution import Execution, use_execution
from sightline.backbones.pixels import Pixels
from sightline.backbones.vision_execution import CapturedVision, use_vision_execution
from sightline.boxes.detection import boxes_of
from sightline.boxes.detectors import DETECTORS, detector_named
from sightline.boxes.sources import check_source, reads_boxes
from sightline.core.prefix import Encoded, Prefix
from sightline.cost.benchmarks.ttft import TtftRequest
from sightline.cost.flops import language_flops, vision_flops
from sightline.cost.machine import PeakMemory
from sightline.cost.measurement import Measurement
from sightline.cost.profile import profiled
from sightline.cost.stand_in_clip import ForgetfulClip
from sightline.cost.subject import Subject
from sightline.cost.timing.time_stock import measure_stock
from sightline.device.stopwatch import Stopwatch

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
    images = [subject.image(i) for i in range(2)]
    sample = backbone.preprocess(images[0])
    setups = len(execution.setup_ms)
    memory = PeakMemory(subject.device)
    captured = CapturedVision(backbone, sample, arm.selector.needs) if request.execution == "graph" else None
    if request.execution == "graph" and isinstance(subject.step.clip, ForgetfulClip):
        subject.step.clip.capture()
    detects = request.box_source.partition(":")[0] in DETECTORS and reads_boxes(arm.selector)
    detector = detector_named(request.box_source)() if detects else None
    path = Path(subject, arm, captured, detector)
    taken: list[dict[str, float]] = []
    for repeat in range(request.warm_up + request.repeats):
        stages = path.first_token(images[repeat % len(images)])
        if repeat >= request.warm_up:
            taken.append(stages)
        elif repeat == request.warm_up - 1 and request.execution != "graph":
            memory.warmed_up()
    used = memory.read()
    samples = {stage: [each[stage] for each in taken] for stage in taken[0]}
    for _ in range(request.repeats if request.decode else 0):
        for count, ms in path.decoding(list(request.decode)).items():
            samples.setdefault(f"decode_{count}", []).append(ms)
    encoded, prefix = path.encoded, path.prefix
    length = prefix.embeds.shape[0]
    return Measurement(
        arm=arm.text,
        batch=1,
        visual_tokens=encoded.n,
        kept_tokens=path.kept,
        length=length,
        samples_ms=samples,
        flops={
            "vision": vision_flops(backbone, attention_sequences(subject, sample), encoded.n),
            **({} if arm.inside else {"prefill": language_flops(backbone, length)}),
        },
        memory=used,
        setup_ms=execution.setup_ms[setups:],
        extra={"profile": profiled(lambda: path.first_token(images[0]), subject.device)} if request.profile else {},
    )


def attention_sequences(subject: Subject, pixels: Pixels) -> list[int]:
    """Patches that attend to each other in the vision tower: one sequence per image, or per tile."""
    tiles, rows, columns = pixels.grid
    return [rows * columns + subject.backbone.class_tokens] * tiles


@dataclass
class Path:
    """The way of one image through one arm."""

    subject: Subject
    arm: Arm
    captured: CapturedVision | None
    detector: Any
    encoded: Encoded = field(init=False)
    prefix: Prefix = field(init=False)
    passed: ArmPass = field(init=False)
    kept: int = field(init=False)

    @torch.inference_mode()
    def first_token(self, image: Image.Image) -> dict[str, float]:
        """Milliseconds of every stage. Only methods that look at values, and the last read, wait for the device."""
        subject, backbone, device = self.subject, self.subject.backbone, self.subject.device
        probe = subject.probe(0)
        stages: dict[str, Stopwatch] = {}
        started = time.perf_counter()
        stages["preprocess"] = Stopwatch(HOST)
        pixels = backbone.preprocess(image, self.captured.staging if self.captured else None)
        stages["preprocess"].stop()
        if self.detector is not None:
            stages["detector"] = Stopwatch(HOST)
            boxes, _ = boxes_of(self.detector.find(np.asarray(image)), *image.size)
            stages["detector"].stop()
            probe = replace(probe, boxes=boxes)
        stages["vision"] = Stopwatch(device)
        if self.captured is not None:
            encoded = self.captured(pixels)
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
        hidden = language.run(language.collate([prefix]), cutter).hidden
        stages["prefill"].stop()
        stages["first_token"] = Stopwatch(device)
        token = language.head(language.norm(hidden[0, -1])).argmax()
        stages["first_token"].stop()
        int(token)
        total = (time.perf_counter() - started) * 1e3
        self.encoded, self.prefix, self.passed = encoded, prefix, passed
        (trace,) = passed.traces()
        self.kept = trace.k
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
