"""Real probes one at a time under all arms, as an evaluation script scores them: each answer in a pass of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

import torch

from sightline.arms.arm import Arm
from sightline.backbones.base import Backbone
from sightline.backbones.images import Pixels
from sightline.core.probe import Probe
from sightline.cost.benchmarks.repeated import RepeatedRequest
from sightline.cost.one_sample import ANSWERS, OneAnswer, loss_of
from sightline.cost.request import Measurement
from sightline.cost.subject import Subject
from sightline.device.kernels import planless

Item = TypeVar("Item")


def measure_repeated(request: RepeatedRequest, subject: Subject) -> Iterator[Measurement]:
    """All arms over the same probes; which one begins depends on the number of the process."""
    arms = [subject.arm(text, request.execution) for text in request.arms]
    numbers = range(request.probes_per_process)
    with planless():
        for arm in rotated(arms, request.repetition):
            pixels = [subject.backbone.preprocess(subject.image(number), budget=arm.image_budget) for number in numbers]
            passes = [
                [one_pass(subject, arm, subject.probe(number), pixels[number], answer) for answer in ANSWERS]
                for number in numbers
            ]
            yield _measurement(arm, passes[request.drop :])


def rotated(items: Sequence[Item], by: int) -> list[Item]:
    """The same in a circle, begun ``by`` places later."""
    first = by % len(items)
    return [*items[first:], *items[:first]]


@dataclass(frozen=True)
class Pass:
    """One probe scored with one answer."""

    stages: dict[str, float]
    """Milliseconds by stage."""
    visual_tokens: int
    kept_tokens: int
    length: int


@torch.inference_mode()
def one_pass(subject: Subject, arm: Arm, probe: Probe, pixels: Pixels, answer: str) -> Pass:
    """From the prepared image to the loss of one answer, with nothing left over from the pass before."""
    backbone, scorer = subject.backbone, OneAnswer(answer)
    answerer = subject.answering(scorer)
    scorer.prompt(backbone, probe)  # tokenised and remembered
    laps = Laps(backbone)
    (encoded,) = backbone.encode([pixels], arm.selector.needs)
    laps.end("vision")
    passed = answerer.over(arm, [probe], [encoded])
    prefix = passed.prefix(0)
    cutter = passed.cutter([0], [prefix])
    laps.end("select")
    loss_of(backbone, prefix, cutter)
    laps.end("language")
    stages = {**laps.ms, "total": laps.total}
    (trace,) = passed.traces()
    stages["select"] += trace.inside_ms
    stages["language"] -= trace.inside_ms
    return Pass(stages, encoded.full_n, trace.k, prefix.embeds.shape[0])


class Laps:
    """Wall clock from one finished stage to the next: the device is waited for at the end of each."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self.ms: dict[str, float] = {}
        backbone.synchronise()
        self._started = self._last = time.perf_counter()

    def end(self, stage: str) -> None:
        self._backbone.synchronise()
        now = time.perf_counter()
        self.ms[stage] = (now - self._last) * 1e3
        self._last = now

    @property
    def total(self) -> float:
        """Up to the end of the last stage."""
        return (self._last - self._started) * 1e3


def _measurement(arm: Arm, probes: Sequence[Sequence[Pass]]) -> Measurement:
    """A sample per probe: the mean over its answers."""
    stages = probes[0][0].stages
    every = [each for passes in probes for each in passes]
    return Measurement(
        arm=arm.text,
        batch=1,
        visual_tokens=round(fmean(each.visual_tokens for each in every)),
        kept_tokens=round(fmean(each.kept_tokens for each in every)),
        length=round(fmean(each.length for each in every)),
        samples_ms={name: [fmean(each.stages[name] for each in passes) for passes in probes] for name in stages},
        extra={"keep": fmean(each.kept_tokens / each.visual_tokens for each in every)},
    )
