"""One image to the first token of the answer, everything included, stage by stage; then decoding."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from sightline.core.flags import Flag
from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result, in_inference_mode, in_words_of
from sightline.cost.published import total_speedup_table
from sightline.cost.request import Measurement, ProbedRequest, positive_numbers, with_default
from sightline.cost.spread import FurtherTable, Line, Quantity, StageBars
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from PIL import Image

    from sightline.answering.materialise import ArmPass
    from sightline.arms.arm import Arm
    from sightline.backbones.execution import CapturedVision, Execution
    from sightline.core.prefix import Encoded, Prefix
    from sightline.cost.subject import Subject


def further_tokens(text: str) -> list[dict[str, Any]]:
    return [{"decode": tuple(positive_numbers(text, "--decode")) if text else ()}]


class TtftRequest(ProbedRequest):
    repeats: int = with_default("repeats", 20)
    warm_up: int = with_default("warm_up", 5)
    decode: Annotated[tuple[int, ...], Flag(read=further_tokens, usual="1,32,128")] = Field(
        (), description="Comma-separated numbers of further tokens; empty: none."
    )
    box_source: str = Field("annotation", description="Where boxes come from; a detector is a stage.")
    detector_ms: float = Field(
        0.0,
        ge=0,
        description="A detector's milliseconds, measured elsewhere: added to total speed-ups of arms that read boxes.",
    )

    @model_validator(mode="after")
    def _detector_is_timed_once(self) -> Self:
        if self.detector_ms and self.box_source != "annotation":
            raise SightlineError(f"--box-source {self.box_source} is timed here: drop --detector-ms")
        return self


@BENCHMARKS.register("ttft")
@in_words_of(__file__)
class Ttft(Benchmark[TtftRequest]):
    name = "ttft"
    request = TtftRequest
    executions = ("stock", "eager", "compiled", "graph")
    usual_executions = ("stock", "eager", "graph")
    main = "total"
    counted = frozenset({"vision", "prefill"})
    before_selection = ("preprocess", "vision")
    chart = StageBars("Stages from image to first token", whole=("total", "decode"))

    def measure(self, request: TtftRequest, subject: Subject) -> Iterator[Measurement]:
        from sightline.backbones.execution import use_execution, use_vision_execution
        from sightline.boxes.sources import check_source

        check_source(request.box_source)
        if request.execution == "stock":
            yield from measure_stock(request, subject)
            return
        execution = use_execution(subject.backbone.language, request.execution, dynamic=False, bucket=None)
        use_vision_execution(subject.backbone, execution, dynamic=False)
        for text in request.arms:
            yield _one_arm(request, subject, execution, subject.arm(text, request.execution))

    def figures(self, point: dict[str, Any], result: Result) -> dict[str, Any]:
        given = result["request"].get("detector_ms")
        return {"given_detector_ms": given} if given and point["extra"].get("reads_boxes") else {}

    def further_tables(self, lines: Sequence[Line]) -> list[FurtherTable]:
        table = total_speedup_table(lines)
        return [table] if table else []

    def arms_under(self, execution: str, arms: tuple[str, ...]) -> tuple[str, ...]:
        """The model's own forward cannot prune."""
        return ("full",) if execution == "stock" else arms

    def columns(self, results: Sequence[Result]) -> list[Quantity]:
        """The stages that the card's timer names, and those of decoding, where the file says ``stages``."""
        timer: dict[str, str] = results[0]["inside_timer"]
        taken = dict.fromkeys(
            stage for result in results for point in result["points"] for stage in point["samples_ms"]
        )
        stages = [_stage(name, covers) for name, covers in timer.items() if name not in self.chart.whole]
        stages += [_stage(name, "Further tokens, outside the total.") for name in taken if name.startswith("decode_")]
        columns = super().columns(results)
        place = [column.key for column in columns].index("stages")
        return [*columns[:place], *stages, *columns[place + 1 :]]


def _stage(name: str, covers: str) -> Quantity:
    title = name.replace("_", " ").capitalize()
    return Quantity(f"{name}_ms", title, "number", help=covers[:1].upper() + covers[1:], card=False)


def _one_arm(request: TtftRequest, subject: Subject, execution: Execution, arm: Arm) -> Measurement:
    """All samples of one arm, stage by stage, then its decoding."""
    from sightline.boxes.detectors import DETECTORS, detector_named
    from sightline.boxes.sources import reads_boxes
    from sightline.cost.machine import PeakMemory, language_flops, profiled, vision_flops
    from sightline.cost.subject import ForgetfulClip

    backbone = subject.backbone
    images = [subject.image(i) for i in range(subject.distinct(2))]
    setups = len(execution.setup_ms)
    memory = PeakMemory(subject.device)
    if request.execution == "graph" and isinstance(subject.step.clip, ForgetfulClip):
        subject.step.clip.capture()
    boxed = reads_boxes(arm.selector)
    detects = request.box_source.partition(":")[0] in DETECTORS and boxed
    detector = detector_named(request.box_source)() if detects else None
    way = ImagePath(subject, arm, request.execution == "graph", detector)
    way.capture(images[0])
    taken: list[dict[str, float]] = []
    work: list[Work] = []
    warm_up = untimed(request, subject)
    for repeat in range(warm_up + request.repeats):
        number = repeat % len(images)
        stages = way.first_token(images[number], number)
        if repeat >= warm_up:
            taken.append(stages)
            work.append(way.work)
        elif repeat == warm_up - 1 and request.execution != "graph":
            memory.warmed_up()
    used = memory.read()
    samples = {stage: [each[stage] for each in taken] for stage in taken[0]}
    for _ in range(request.repeats if request.decode else 0):
        for count, ms in way.decoding(list(request.decode)).items():
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
            **({"profile": profiled(lambda: way.first_token(images[0]), subject.device)} if request.profile else {}),
        },
    )


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
class ImagePath:
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
        from sightline.backbones.execution import CapturedVision
        from sightline.backbones.towered import Towered

        backbone = self.subject.backbone
        if self.captures and isinstance(backbone, Towered) and image.size not in self._captured:
            sample = backbone.preprocess(image, budget=self.arm.image_budget)
            self._captured[image.size] = CapturedVision(backbone, sample, backbone.form(self.arm.selector).needs)
        return self._captured.get(image.size)

    @in_inference_mode
    def first_token(self, image: Image.Image, number: int = 0) -> dict[str, float]:
        """Milliseconds of every stage, for the question about the image of that number.

        Only methods that look at values, and the last read, wait for the device.
        """
        import numpy as np
        import torch

        from sightline.boxes.detection import boxes_of
        from sightline.cost.machine import attention_sequences
        from sightline.device.work import Stopwatch

        subject, backbone = self.subject, self.subject.backbone
        device, host = subject.device, torch.device("cpu")
        probe, captured = subject.probe(number), self.capture(image)
        stages: dict[str, Stopwatch] = {}
        started = time.perf_counter()
        stages["preprocess"] = Stopwatch(host)
        pixels = backbone.preprocess(image, captured.staging if captured else None, budget=self.arm.image_budget)
        stages["preprocess"].stop()
        if self.detector is not None:
            stages["detector"] = Stopwatch(host)
            boxes, _ = boxes_of(self.detector.find(np.asarray(image)), *image.size)
            stages["detector"].stop()
            probe = replace(probe, boxes=boxes)
        stages["vision"] = Stopwatch(device)
        if captured is not None:
            encoded = captured(pixels)
        else:
            (encoded,) = backbone.encode([pixels], backbone.form(self.arm.selector).needs)
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
            attention_sequences(backbone, pixels), encoded.n, encoded.full_n, trace.k, prefix.embeds.shape[0]
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


def measure_stock(request: TtftRequest, subject: Subject) -> Iterator[Measurement]:
    """From the image in memory to the first token by transformers alone; it can only read the full prefix.

    That is what a user has without Sightline: the checkpoint's image processor and the model's own eager forward.
    """
    import torch

    from sightline.backbones.base import model_inputs
    from sightline.cost.machine import PeakMemory, language_flops

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
