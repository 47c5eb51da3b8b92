"""Times answers in words: the audit's loop, one decoding step alone, and the model's own ``generate``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence

import torch

from sightline.answering.scorers.base import Reading
from sightline.answering.scorers.spoken import Generation, Heard
from sightline.backbones.base import Backbone, model_inputs
from sightline.backbones.decoding import Decoder, Slots
from sightline.backbones.execution import use_execution, use_vision_execution
from sightline.backbones.language import Cutter
from sightline.core.prefix import Prefix
from sightline.cost.benchmarks.answers import AnswersRequest
from sightline.cost.machine import PeakMemory
from sightline.cost.request import Measurement
from sightline.cost.subject import Subject
from sightline.cost.timing.time_sweep import evenly, run_sweep
from sightline.device.kernels import planless
from sightline.device.transfer import Stopwatch

STEPS = 20
READ_BYTES = 2**32


class EveryToken(Generation):
    """Says as many tokens as it may: with random weights nothing else would end an answer."""

    def __init__(self, max_new_tokens: int, slots: int) -> None:
        super().__init__(max_new_tokens)
        self.slots = slots

    def launch(self, backbone: Backbone, prefixes: Sequence[Prefix], cutter: Cutter | None) -> Reading:
        if self._decoder is None:
            self._decoder = Decoder(backbone.language, self.max_new_tokens, frozenset(), self.slots)
        return Heard(self._decoder.launch(prefixes, cutter), backbone, self.max_new_tokens)


def measure_answers(request: AnswersRequest, subject: Subject) -> Iterator[Measurement]:
    arms = [subject.arm(text, request.execution) for text in request.arms]
    language = subject.backbone.language
    execution = use_execution(language, request.execution, dynamic=True)
    use_vision_execution(subject.backbone, execution)
    memory = PeakMemory(subject.device)
    scorer = EveryToken(request.answer_tokens, request.slots)
    began = time.perf_counter()
    with planless():  # as in an audit
        run_sweep(request, subject, arms, evenly(range(request.images), request.shard_images)[0], scorer)
        subject.backbone.synchronise()
        setup = (time.perf_counter() - began) * 1e3
        memory.warmed_up()
        started = time.perf_counter()
        rows, spent = run_sweep(request, subject, arms, range(request.images), scorer)
        subject.backbone.synchronise()
        engine_ms = (time.perf_counter() - started) * 1e3
        used = memory.read()
        scorer = EveryToken(1, 1)  # lets go of its slots
        steps = time_steps(request, subject)
    use_vision_execution(subject.backbone, use_execution(language, "eager"))
    one = [time_stock(request, subject, 1) for _ in range(request.warm_up + request.stock)][request.warm_up :]
    batch: list[float] = []
    if request.stock_batch:
        batch = [time_stock(request, subject, request.stock_batch) for _ in range(2)][1:]
    step_ms = statistics.median(steps)
    rate, moved = len(rows) / engine_ms * 1e3, step_bytes(request, subject) / step_ms / 1e6
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
        extra |= {"stock_one_per_s": 1e3 / statistics.median(one), "to_stock_one": rate * statistics.median(one) / 1e3}
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


@torch.inference_mode()
def time_steps(request: AnswersRequest, subject: Subject) -> list[float]:
    """Milliseconds of single steps of all slots."""
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


def step_bytes(request: AnswersRequest, subject: Subject) -> float:
    """What a step cannot do without reading: all weights of layers and head, and every slot's keys and values."""
    language = subject.backbone.language
    weights = sum(p.nbytes for module in (*language.layers, language.head) for p in module.parameters())
    each = 2 * len(language.layers) * language.key_heads * language.head_width * language.dtype.itemsize
    return float(weights + each * request.slots * request.cached)


def read_bandwidth(device: torch.device) -> float:
    """GB/s that summing a large tensor reaches."""
    size = READ_BYTES if device.type == "cuda" else READ_BYTES // 64
    numbers = torch.ones(size // 4, dtype=torch.float32, device=device)
    times = []
    for _ in range(6):
        watch = Stopwatch(device)
        numbers.sum()
        watch.stop()
        times.append(watch.ms)
    return float(numbers.nbytes / min(times) / 1e6)


@torch.inference_mode()
def time_stock(request: AnswersRequest, subject: Subject, batch: int) -> float:
    """Milliseconds of one call of the model's own ``generate``; one by one its image processor is part of it."""
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
