"""The paper's repeated timing: real probes one at a time, all arms in turn, in several fresh processes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import Field, model_validator

from sightline.core.flags import Flag
from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result, in_inference_mode, in_words_of
from sightline.cost.card import model_name
from sightline.cost.published import EFFICIENCY, REPEATED, published_key
from sightline.cost.request import Measurement, ProbedRequest, positive_numbers, with_default
from sightline.cost.spread import MeanAndDeviation, StageBars
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.arms.arm import Arm
    from sightline.backbones.base import Backbone
    from sightline.backbones.images import Pixels
    from sightline.core.probe import Probe
    from sightline.cost.subject import Subject

Item = TypeVar("Item")
STAGES = ("vision", "select", "language", "total")


def repetitions(text: str) -> list[dict[str, Any]]:
    """``3``: a request per process, each of which knows its number."""
    counts = positive_numbers(text, "--processes")
    if len(counts) > 1:
        raise SightlineError(f"--processes {text}: give one number")
    return [{"repetition": number} for number in range(counts[0])]


class RepeatedRequest(ProbedRequest):
    probe_file: Annotated[str, Flag(name="--probes")] = Field(
        "", description="Needed: probe file, whose first probes are timed."
    )
    image_folder: Annotated[str, Flag(name="--images")] = Field("", description="Needed: folder of the probes' images.")
    repetition: Annotated[int, Flag(name="--processes", read=repetitions, usual="3")] = Field(
        0, description="Fresh processes; each times all arms, begun with another."
    )
    """Number of this process."""
    probes_per_process: int = Field(100, ge=1, description="The file's first probes, the same in every process.")
    drop: int = Field(5, ge=0, description="Of them the first ones under each arm, thrown away as warm-up.")
    attention: str = with_default("attention", "eager")
    """As in the paper."""
    image_size: tuple[int, int] | None = None
    text_tokens: int = 0
    repeats: int = 1
    """Every probe is timed once per arm and process."""
    warm_up: int = 0
    profile: bool = False

    @model_validator(mode="after")
    def _has_probes_to_time(self) -> Self:
        if not self.probe_file:
            raise SightlineError("repeated timing is of real probes: give --probes FILE and --images DIR")
        if self.drop >= self.probes_per_process:
            raise SightlineError(f"--drop {self.drop} leaves none of {self.probes_per_process} probes")
        return self

    @property
    def most_probes(self) -> int:
        return self.probes_per_process

    @property
    def least_probes(self) -> int:
        return self.probes_per_process


@BENCHMARKS.register("repeated")
@in_words_of(__file__)
class Repeated(Benchmark[RepeatedRequest]):
    name = "repeated"
    request = RepeatedRequest
    executions = ("eager",)
    together = True
    planless = True
    models_own = True
    main = "total"
    before_selection = ("vision",)
    chart = StageBars("Stages of a scoring pass", whole=("total",))
    summary = MeanAndDeviation

    def measure(self, request: RepeatedRequest, subject: Subject) -> Iterator[Measurement]:
        """All arms over the same probes; which one begins depends on the number of the process."""
        from sightline.backbones.attention import without_planned_kernels
        from sightline.cost.one_sample import ANSWERS

        arms = [subject.arm(text, request.execution) for text in request.arms]
        numbers = range(request.probes_per_process)
        with without_planned_kernels():
            for arm in rotated(arms, request.repetition):
                shown = [subject.backbone.preprocess(subject.image(i), budget=arm.image_budget) for i in numbers]
                passes = [
                    [one_pass(subject, arm, subject.probe(i), shown[i], answer) for answer in ANSWERS] for i in numbers
                ]
                yield _measurement(arm, passes[request.drop :])

    def batch_words(self, results: Sequence[Result]) -> str:
        request = results[0]["request"]
        return (
            f"one probe at a time, {request['probes_per_process']} under each arm, the first {request['drop']} dropped"
        )

    def pooled(self, results: Sequence[Result]) -> list[Result]:
        """One result for all processes that were asked for the same: its samples are their means."""
        alike: dict[str, list[Result]] = {}
        for result in results:
            alike.setdefault(json.dumps({**result["request"], "repetition": 0}), []).append(result)
        return [_pooled(group) for group in alike.values()]

    def figures(self, point: dict[str, Any], result: Result) -> dict[str, Any]:
        taken = {stage: self.summary.of(point["samples_ms"][stage]) for stage in STAGES}
        deviations = {f"{stage}_ms_sd": each.deviation for stage, each in taken.items() if each.deviation is not None}
        shown = {stage: str(each) for stage, each in taken.items()}
        return {"keep": point["extra"]["keep"], **shown, **deviations, **_published(point["arm"], result)}


def _pooled(group: Sequence[Result]) -> Result:
    points = []
    for arm in group[0]["request"]["arms"]:
        same = [point for result in group for point in result["points"] if point["arm"] == arm]
        means = {stage: [fmean(point["samples_ms"][stage]) for point in same] for stage in same[0]["samples_ms"]}
        points.append({**same[0], "samples_ms": means})
    return {**group[0], "points": points}


def _published(arm: str, result: Result) -> dict[str, float]:
    """Table S17's row or, for other models, the single-sample column of Table 2."""
    key = published_key(model_name(result["request"]), arm)
    if key in REPEATED:
        return {"published_ms": REPEATED[key].total_ms, "published_speedup": REPEATED[key].speedup}
    return {"published_speedup": EFFICIENCY[key].single} if key in EFFICIENCY else {}


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


@in_inference_mode
def one_pass(subject: Subject, arm: Arm, probe: Probe, pixels: Pixels, answer: str) -> Pass:
    """From the prepared image to the loss of one answer, with nothing left over from the pass before."""
    from sightline.cost.one_sample import OneAnswer, loss_of

    backbone, scorer = subject.backbone, OneAnswer(answer)
    answerer = subject.answering(scorer)
    scorer.prompt(backbone, probe)  # tokenised and remembered
    laps = Laps(backbone)
    (encoded,) = backbone.encode([pixels], backbone.form(arm.selector).needs)
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
