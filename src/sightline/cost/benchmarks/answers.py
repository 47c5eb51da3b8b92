"""Answers in words: the audit's way against the model's own ``generate``, all timed in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from sightline.core.flags import Flag
from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result, in_inference_mode, in_words_of
from sightline.cost.benchmarks.sweep import SweepRequest, evenly, run_sweep
from sightline.cost.request import Measurement, one_request_each, with_default
from sightline.cost.spread import Line, Say
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.answering.scorers.spoken import Generation
    from sightline.cost.subject import Subject

STEPS = 20


class AnswersRequest(SweepRequest):
    images: int = Field(128, ge=1, description="Images of the sweep.")
    probes: int = Field(1, ge=1, description="Questions per image.")
    one_sample_rows: int = 0
    """Hides the sweep's: here ``stock`` says it."""
    answer_tokens: Annotated[
        int, Flag(name="--tokens", read=one_request_each("answer_tokens", "--tokens"), usual="8,32")
    ] = Field(8, description="Tokens of every answer; several, separated by commas, are measured one after the other.")
    slots: int = Field(64, ge=1, description="Sequences that a step continues side by side on a GPU.")
    cached: int = Field(300, ge=1, description="Tokens that every sequence holds where a single step is timed.")
    stock: int = Field(4, ge=0, description="Answers that the model's own generate is timed on, one by one.")
    stock_batch: int = Field(32, ge=0, description="Answers that it is timed on in one batch; 0 leaves both out.")
    warm_up: int = with_default("warm_up", 1)


@BENCHMARKS.register("answers")
@in_words_of(__file__)
class Answers(Benchmark[AnswersRequest]):
    name = "answers"
    request = AnswersRequest
    usual_executions = ("compiled",)
    executions = ("eager", "compiled")
    together = True
    planless = True
    main = "engine"

    def measure(self, request: AnswersRequest, subject: Subject) -> Iterator[Measurement]:
        from sightline.backbones.attention import without_planned_kernels
        from sightline.backbones.execution import use_execution, use_vision_execution
        from sightline.cost.machine import PeakMemory, read_bandwidth, step_weights, token_bytes

        if not subject.backbone.language.plain:
            raise SightlineError("this model's own decoder answers one question at a time: nothing is batched")
        arms = [subject.arm(text, request.execution) for text in request.arms]
        language = subject.backbone.language
        execution = use_execution(language, request.execution, dynamic=True)
        use_vision_execution(subject.backbone, execution)
        memory = PeakMemory(subject.device)
        scorer = every_token(request, subject)
        began = time.perf_counter()
        with without_planned_kernels():  # as in an audit
            run_sweep(request, subject, arms, evenly(range(request.images), request.shard_images)[0], scorer)
            subject.backbone.synchronise()
            setup = (time.perf_counter() - began) * 1e3
            memory.warmed_up()
            started = time.perf_counter()
            rows, spent = run_sweep(request, subject, arms, range(request.images), scorer)
            subject.backbone.synchronise()
            engine_ms = (time.perf_counter() - started) * 1e3
            used = memory.read()
            del scorer  # and with it its slots
            steps = time_steps(request, subject)
        use_vision_execution(subject.backbone, use_execution(language, "eager"))
        one = [time_stock(request, subject, 1) for _ in range(request.warm_up + request.stock)][request.warm_up :]
        batch: list[float] = []
        if request.stock_batch:
            batch = [time_stock(request, subject, request.stock_batch) for _ in range(2)][1:]
        step_ms = statistics.median(steps)
        rate = len(rows) / engine_ms * 1e3
        moved = (step_weights(language) + token_bytes(language) * request.slots * request.cached) / step_ms / 1e6
        reached = read_bandwidth(subject.device)
        extra: dict[str, float | int | list[str]] = {
            "arms": [arm.text for arm in arms],
            "answers": len(rows),
            "answers_per_s": rate,
            "step_ms": step_ms,
            "step_gb_per_s": moved,
            "of_bandwidth": moved / reached,
        }
        if one:
            extra |= {
                "stock_one_per_s": 1e3 / statistics.median(one),
                "to_stock_one": rate * statistics.median(one) / 1e3,
            }
        if batch:
            stock = request.stock_batch / batch[0] * 1e3
            extra |= {"stock_batch_per_s": stock, "to_stock_batch": rate / stock}
        stages = {name: [ms] for name, ms in spent.stages.items()}
        timed = {"engine": [engine_ms], "stock_one": one, "stock_batch": batch, "step": steps, **stages}
        yield Measurement(
            arm=f"{len(arms)} arms",
            batch=len(rows),
            visual_tokens=0,
            kept_tokens=0,
            length=0,
            samples_ms={name: samples for name, samples in timed.items() if samples},
            flops={"engine": spent.flops},
            memory=used,
            setup_ms=[setup],
            extra=extra,
        )

    def batching(self, request: dict[str, Any]) -> str:
        return f"{request['answer_tokens']} tokens"

    def batch_words(self, results: Sequence[Result]) -> str:
        request = results[0]["request"]
        return (
            f"{request['images']} images with {request['probes']} questions each; prefixes up to "
            f"{request['batch_tokens']} tokens at a time, {request['slots']} answers side by side"
        )

    def figures(self, point: dict[str, Any], result: Result) -> dict[str, Any]:
        return {"tokens": result["request"]["answer_tokens"], **point["extra"]}

    def sentence(self, lines: Sequence[Line], say: Say) -> str:
        parts = []
        for line in lines:
            stock = line.get("stock_batch_per_s")
            beside = f", the model's own generate in batches {say(stock, 'number')}" if stock == stock and stock else ""
            parts.append(
                f"with {line['tokens']} tokens each, {say(line['answers_per_s'], 'number')} answers per second{beside}"
            )
        return f"{'; '.join(parts)}.".capitalize()


def every_token(request: AnswersRequest, subject: Subject) -> Generation:
    """Says as many tokens as it may, whatever they are: with random weights nothing else would end an answer."""
    from sightline.answering.scorers.spoken import Generation
    from sightline.backbones.decoding import Decoder

    scorer = Generation(request.answer_tokens)
    scorer._decoder = Decoder(subject.backbone.language, request.answer_tokens, frozenset(), request.slots)
    return scorer


@in_inference_mode
def time_steps(request: AnswersRequest, subject: Subject) -> list[float]:
    """Milliseconds of single steps of all slots."""
    from sightline.backbones.decoding import Slots
    from sightline.device.work import Stopwatch

    language = subject.backbone.language
    slots = Slots(language, request.slots, request.cached + STEPS + 8, STEPS + 8, frozenset())
    slots.lengths.fill_(request.cached)
    slots.positions.fill_(request.cached)
    samples = []
    for turn in range(3 + STEPS):
        slots.active.fill_(True)
        slots.said.fill_(1)
        slots.lengths.fill_(request.cached)
        watch = Stopwatch(subject.device)
        slots.step()
        watch.stop()
        if turn >= 3:
            samples.append(watch.ms)
    return samples


@in_inference_mode
def time_stock(request: AnswersRequest, subject: Subject, batch: int) -> float:
    """Milliseconds of one call of the model's own ``generate``; one by one its image processor is part of it."""
    import torch

    from sightline.backbones.base import model_inputs

    backbone = subject.backbone
    image, prompt = subject.image(0), subject.prompt
    ids = (*prompt.head, *prompt.tail)
    backbone.synchronise()
    started = time.perf_counter()
    inputs = model_inputs(backbone, image, ids, len(prompt.head))
    if batch > 1:
        inputs = {name: torch.cat([tensor] * batch) for name, tensor in inputs.items()}
        backbone.synchronise()
        started = time.perf_counter()
    wanted = request.answer_tokens
    backbone.model.generate(
        **inputs, max_new_tokens=wanted, min_new_tokens=wanted, do_sample=False, pad_token_id=0, eos_token_id=None
    )
    backbone.synchronise()
    return (time.perf_counter() - started) * 1e3
