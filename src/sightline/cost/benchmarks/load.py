"""One engine under load: image to tokens, selection, prefill and decode on one device, with many clients at a time.

Everything of one answer length is measured in one process: single stages first, then loads. What the cost model
makes of the stages stands beside what was measured. An endpoint is driven by the same client.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from sightline.core.flags import Flag
from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result, in_inference_mode, in_words_of
from sightline.cost.load import (
    Continuous,
    LatencyBound,
    Served,
    Server,
    Streaming,
    drive,
    latencies,
    law_rate,
    two_part_law,
)
from sightline.cost.plan import STAGES, ArmStages, Stages, amdahl, predict
from sightline.cost.request import Measurement, Request, positive_numbers, with_default, words_of
from sightline.cost.spread import BatchCurves, FurtherTable, Line, Quantity, Say, StageBars, is_full
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.arms.arm import Arm
    from sightline.backbones.decoding import Slots
    from sightline.core.prefix import Encoded, Prefix
    from sightline.cost.subject import Subject
    from sightline.engines.openai import Endpoint

DRAWN = 4
"""Different images; the engine keeps none of them between requests."""
FEWEST_ROUNDS = 4
"""Requests of every client that count, at least."""


def numbers_of_clients(text: str) -> list[dict[str, Any]]:
    return [{"clients": tuple(positive_numbers(text, "--clients"))}]


def shares_of_load(text: str) -> list[dict[str, Any]]:
    try:
        shares = tuple(float(part) for part in words_of(text))
    except ValueError:
        shares = (0.0,)
    if not all(0 < share < math.inf for share in shares):
        raise SightlineError(f"--arrivals {text}: give positive numbers, separated by commas, or nothing")
    return [{"arrivals": shares}]


def lengths_of_answers(text: str) -> list[dict[str, Any]]:
    return [{"answer_tokens": count} for count in positive_numbers(text, "--tokens")]


def questions_per_image(text: str) -> list[dict[str, Any]]:
    return [{"questions": count} for count in positive_numbers(text, "--questions")]


class LoadRequest(Request):
    profile: bool = False
    repeats: int = with_default("repeats", 5)
    warm_up: int = with_default("warm_up", 2)
    clients: Annotated[tuple[int, ...], Flag(read=numbers_of_clients, usual="1,2,4,8,16,32,64")] = Field(
        (1,), description="Clients of the closed loop, comma-separated: each asks again as soon as it was answered."
    )
    arrivals: Annotated[tuple[float, ...], Flag(read=shares_of_load, usual="0.5,0.8")] = Field(
        (), description="Open loop: arrivals, as shares of the most requests per second of the full prefix; or nothing."
    )
    answer_tokens: Annotated[int, Flag(name="--tokens", read=lengths_of_answers, usual="8,32,128")] = Field(
        8, description="Tokens of every answer; several, separated by commas, are measured one after the other."
    )
    questions: Annotated[int, Flag(read=questions_per_image, usual="1,4")] = Field(
        1, description="Questions in a row about one image, likewise."
    )
    requests: int = Field(
        32, ge=1, description="Requests that count in every run, at least; four per client otherwise."
    )
    slots: int = Field(64, ge=1, description="Sequences that a step continues side by side.")
    together: int = Field(4, ge=1, description="Requests that are admitted at a time, between two steps.")
    ttft_bound: float = Field(1000.0, gt=0, description="Milliseconds to the first token that a good request keeps.")
    token_bound: float = Field(50.0, gt=0, description="Milliseconds between tokens, in the mean, that it keeps.")
    seed: int = Field(17, description="Of the arrivals.")
    anchor: bool = Field(True, description="Also time transformers' continuous batching, on the language model alone.")
    pruned: str = Field(
        "", description="Of an endpoint: a second server that prunes, openai:URL#NAME; --model does not."
    )
    extra: str = Field("", description="Of an endpoint: further fields of every request, NAME=VALUE, comma-separated.")

    @model_validator(mode="before")
    @classmethod
    def _arms_of_an_endpoint(cls, values: dict[str, Any]) -> dict[str, Any]:
        if str(values.get("checkpoint", "")).startswith("openai:") and tuple(values.get("arms", ())) == Load.arms:
            values = {**values, "arms": ("full", "engine:default") if values.get("pruned") else ("full",)}
        return values

    @model_validator(mode="after")
    def _fits_the_slots(self) -> Self:
        if self.endpoint and not self.pruned and "engine:default" in self.arms:
            raise SightlineError("engine:default sets no switch and would be full again: name a server with --pruned")
        if (self.pruned or self.extra) and not self.endpoint:
            raise SightlineError("--pruned and --extra are for endpoints: --model openai:URL#NAME")
        if self.arrivals and not any(map(is_full, self.arms)):
            raise SightlineError("--arrivals are shares of what the full prefix reaches: add --arm full, or give none")
        return self

    @property
    def endpoint(self) -> bool:
        return self.checkpoint.startswith("openai:")

    def record(self) -> dict[str, Any]:
        """Of an endpoint the name of the model alone."""
        return (
            {**super().record(), "checkpoint": self.checkpoint.rpartition("#")[2]}
            if self.endpoint
            else super().record()
        )

    @property
    def bound(self) -> LatencyBound:
        return LatencyBound(self.ttft_bound, self.token_bound)

    def count(self, clients: int) -> int:
        return clients + max(self.requests, FEWEST_ROUNDS * clients)


@BENCHMARKS.register("load")
@in_words_of(__file__)
class Load(Benchmark[LoadRequest]):
    name = "load"
    request = LoadRequest
    usual_executions = ("compiled",)
    executions = ("eager", "compiled")
    together = True
    planless = True
    main = "request"
    chart = (
        BatchCurves((("requests_per_s", "Requests/s"), ("speedup", "Ratio to full"), ("ttft_p99_ms", "First token p99, ms")),
                    over="clients"),
        StageBars("Where a request's time goes", whole=("request",), most=True),
    )  # fmt: skip

    def measure(self, request: LoadRequest, subject: Subject) -> Iterator[Measurement]:
        from sightline.backbones.attention import planless
        from sightline.backbones.execution import use_execution, use_vision_execution

        if not subject.backbone.language.plain:
            raise SightlineError("this model's own decoder answers one request at a time: there is no load to measure")
        arms = [subject.arm(text, request.execution) for text in request.arms]
        execution = use_execution(subject.backbone.language, request.execution, dynamic=True)
        use_vision_execution(subject.backbone, execution)
        with planless():
            bench = Bench(request, subject, arms)
            stages = bench.stages()
            for arm in sorted(arms, key=lambda arm: not is_full(arm.text)):
                yield from bench.measure(arm, stages)

    def elsewhere(self, request: LoadRequest) -> Result | None:
        return at_endpoint(self, request) if request.endpoint else None

    # ------------------------------------------------------------------ how a card shows it

    def batching(self, request: dict[str, Any]) -> str:
        asked = f", {request['questions']} questions an image" if request["questions"] > 1 else ""
        return f"answers of {request['answer_tokens']} tokens{asked}"

    def batch_words(self, results: Sequence[Result]) -> str:
        request = results[0]["request"]
        if request["checkpoint"] and not results[0]["ceiling"]:
            return "the server's own"
        return f"{request['slots']} slots, up to {request['together']} requests admitted at a time"

    def figures(self, point: dict[str, Any], result: Result) -> dict[str, Any]:
        extra = {key: value for key, value in point["extra"].items() if key not in ("stages", "anchor")}
        clients = {"clients": point["batch"]} if point["batch"] else {"clients": None, "speedup": None}
        return {**extra, **clients, **point["extra"].get("anchor", {})}

    def further_tables(self, lines: Sequence[Line]) -> list[FurtherTable]:
        return [table for table in (crossover_table(lines), anchor_table(lines)) if table.lines]

    def reading(self, lines: Sequence[Line], say: Say) -> str:
        parts = [
            f"{row['arm']} ({row['batching']}) is {say(row['best'], 'ratio')} at best, with {row['best_at']} clients, "
            + ("and never pays" if row["from_clients"] is None else f"and pays from {row['from_clients']} on")
            for row in crossover_table(lines).lines
        ]
        errors = [abs(line["prediction_error"]) for line in lines if known(line.get("prediction_error"))]
        told = (
            f" The cost model's median error over {len(errors)} points is {statistics.median(errors):.1%}."
            if errors
            else ""
        )
        return f"{'; '.join(parts)}.{told}" if parts else told.strip()


def known(value: Any) -> bool:
    return value is not None and value == value


class OwnEngine(Continuous):
    """Sightline's own engine as a server: its backbone, its selectors, its decoding in slots."""

    def __init__(self, request: LoadRequest, subject: Subject, arm: Arm, slots: Slots) -> None:
        self.arm, self.subject, self.kept_slots = arm, subject, slots
        self.drawn = [subject.image(i) for i in range(DRAWN)]
        self.encoded: dict[int, Encoded] = {}
        self.alone: Prefix | None = None
        """What everybody asks, where the language model alone is measured."""
        super().__init__(request.slots, request.together, request.answer_tokens, request.questions)

    def reset(self) -> None:
        super().reset()
        self.encoded.clear()
        self._watches: list[tuple[str, Any]] = []
        self.kept_slots.active.fill_(False)

    @property
    def token_bytes(self) -> int:
        language = self.subject.backbone.language
        return 2 * len(language.layers) * language.key_heads * language.head_width * language.dtype.itemsize

    def now(self) -> float:
        return time.perf_counter()

    def wait(self, until: float) -> None:
        time.sleep(max(0.0, until - self.now()))

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        import torch

        from sightline.device.work import Stopwatch

        watch = Stopwatch(torch.device("cpu") if stage == "preprocess" else self.subject.device)
        yield
        watch.stop()
        self._watches.append((stage, watch))

    def _settle(self) -> None:
        """Reads the clocks of work that has ended."""
        for stage, watch in self._watches:
            self.spent[stage] = self.spent.get(stage, 0.0) + watch.ms
        self._watches.clear()

    def prefixes(self, new: Sequence[Served]) -> tuple[list[Prefix], Any]:
        """What the language model reads for these requests, and what cuts between its layers."""
        backbone, fresh = self.subject.backbone, self.fresh(new)
        with self._timed("preprocess"):
            images = [self.drawn[image % DRAWN] for image in fresh]
            pixels = [backbone.preprocess(image, budget=self.arm.image_budget) for image in images]
        with self._timed("tower"):
            if fresh:
                self.encoded.update(zip(fresh, backbone.encode(pixels, self.arm.selector.needs), strict=True))
        with self._timed("select"):
            asked = [(request.number // self.questions, request.number % self.questions) for request in new]
            probes = [self.subject.probe(image % DRAWN, question) for image, question in asked]
            passed = self.subject.over(self.arm, [self.encoded[image] for image, _ in asked], probes)
            prefixes = [passed.prefix(i) for i in range(len(new))]
            for image, question in asked:
                if question == self.questions - 1:
                    del self.encoded[image]
        return prefixes, passed.cutter(range(len(new)), prefixes)

    @in_inference_mode
    def admit(self, places: Sequence[int], new: Sequence[Served]) -> list[int]:
        language = self.subject.backbone.language
        prefixes, cutter = self.prefixes(new) if self.alone is None else ([self.alone] * len(new), None)
        with self._timed("prefill"):
            kept = language.keep(prefixes, cutter)
            self.kept_slots.put(list(places), kept, list(range(len(new))))
        positions = kept.lengths.sum(0).tolist()  # waits: the first tokens are there
        self._settle()
        return [count * self.token_bytes // len(language.layers) for count in positions]

    def among(self, count: int) -> int:
        """Captured steps have a power of two of slots, so that there are few."""
        return min(self.slots, 1 << (count - 1).bit_length()) if self.subject.device.type == "cuda" else count

    def step(self, among: int) -> None:
        with self._timed("decode"):
            self.kept_slots.step(among=self.among(among))
        self.kept_slots.newest.tolist()  # every token is told as soon as it is there
        self._settle()


class Bench:
    """All of one process: single moves of the engine, then loads."""

    def __init__(self, request: LoadRequest, subject: Subject, arms: Sequence[Arm]) -> None:
        from sightline.backbones.decoding import Slots

        self.request, self.subject, self.arms = request, subject, arms
        passed = [self._prefix(arm) for arm in arms]
        self.prefix = {arm.text: prefix for arm, (prefix, _) in zip(arms, passed, strict=True)}
        self.visual = {arm.text: visual for arm, (_, visual) in zip(arms, passed, strict=True)}
        room = max(prefix.embeds.shape[0] for prefix in self.prefix.values()) + request.answer_tokens
        self.slots = Slots(subject.backbone.language, request.slots, room, request.answer_tokens, frozenset())
        self.engines = {arm.text: OwnEngine(request, subject, arm, self.slots) for arm in arms}
        self.full: dict[int, dict[str, float]] = {}
        """Clients -> milliseconds per request of every stage of the full prefix."""
        self.best = 0.0
        """Most requests per second of the full prefix."""

    @in_inference_mode
    def _prefix(self, arm: Arm) -> tuple[Prefix, int]:
        backbone, subject = self.subject.backbone, self.subject
        pixels = backbone.preprocess(subject.image(0), budget=arm.image_budget)
        (encoded,) = backbone.encode([pixels], arm.selector.needs)
        return subject.over(arm, [encoded]).prefix(0), encoded.full_n

    def stages(self) -> Stages:
        """Every move of the engine by itself: admissions of 1, 2, 4, ... requests, steps of 1, 2, 4, ... slots."""
        request, machine = self.request, self.subject.device.type
        arms = {text: self._admissions(engine) for text, engine in self.engines.items()}
        lengths = [arm.length for arm in arms.values()]
        widest = min(request.slots, max(request.clients) if request.clients else request.slots)
        widest = request.slots if request.arrivals else widest
        steps = {
            count: {
                cached: self._step(count, cached) for cached in (min(lengths), max(lengths) + request.answer_tokens - 1)
            }
            for count in powers(widest)
        }
        engine = next(iter(self.engines.values()))
        powerful = machine == "cuda"
        return Stages(arms, steps, engine.token_bytes, request.slots, request.together, powerful, self._facts())

    def _facts(self) -> str:
        from sightline.cost.machine import machine_facts

        facts = machine_facts(self.subject.device)
        where = (
            facts["name"]
            if facts["device"] == "cuda"
            else f"a CPU ({facts['name']}, {facts['threads']} threads; no GPU)"
        )
        return f"{where}, {self.request.config or self.request.checkpoint}, {self.request.execution}"

    def _admissions(self, engine: OwnEngine) -> ArmStages:
        request, found = self.request, dict[int, dict[str, float]]()
        held = 0
        for count in powers(request.together):
            taken: list[dict[str, float]] = []
            for _ in range(request.warm_up + request.repeats):
                engine.reset()
                new = [Served(i * request.questions, 0.0) for i in range(count)]
                started = time.perf_counter()
                held = engine.admit(range(count), new)[0]
                wall = (time.perf_counter() - started) * 1e3
                taken.append({**engine.spent, "other": wall - sum(engine.spent.values())})
            kept = taken[request.warm_up :]
            found[count] = {stage: statistics.median(each[stage] for each in kept) for stage in STAGES}
        prefix, visual = self.prefix[engine.arm.text], self.visual[engine.arm.text]
        return ArmStages(visual, prefix.k, prefix.embeds.shape[0], held, found)

    def _step(self, count: int, cached: int) -> float:
        slots, engine = self.slots, next(iter(self.engines.values()))
        samples = []
        for _ in range(self.request.warm_up + self.request.repeats):
            engine.reset()
            slots.lengths.fill_(cached)
            slots.positions.fill_(cached)
            slots.said.fill_(1)
            slots.active[:count].fill_(True)
            started = time.perf_counter()
            engine.step(count)
            samples.append((time.perf_counter() - started) * 1e3)
        return statistics.median(samples[self.request.warm_up :])

    def measure(self, arm: Arm, stages: Stages) -> Iterator[Measurement]:
        """All loads of one arm. The full prefix comes first: arrivals and Amdahl's law go by it."""
        request, told = self.request, {"stages": stages.as_dict()}
        drive(
            self.engines[arm.text], 2 * request.together, clients=request.together
        )  # lengths in the middle of an answer
        for clients in request.clients:
            point = self._run(arm, stages, clients=clients)
            if is_full(arm.text):
                self.best = max(self.best, point.extra["requests_per_s"])
                self.full[clients] = {name: ms for name, (ms,) in point.samples_ms.items() if name != "request"}
            elif clients in self.full:
                law, most = amdahl(stages, arm.text, self.full[clients], clients)
                point.extra |= {"amdahl": law, "most": most}
            if request.anchor and clients == max(request.clients):
                point.extra["anchor"] = self._anchor(arm, clients)
            point.extra |= told
            told = {}
            yield point
        for share in request.arrivals:
            yield self._run(arm, stages, rate=share * self.best)

    def _run(self, arm: Arm, stages: Stages, *, clients: int = 0, rate: float = 0.0) -> Measurement:
        request, engine = self.request, self.engines[arm.text]
        engine.reset()
        started, count = engine.now(), request.count(clients)
        load: dict[str, Any] = {"clients": clients, "rate": rate, "seed": request.seed}
        ended = drive(engine, count, **load)
        wall = (ended[-1].ended - started) * 1e3
        found = latencies(ended, clients, request.bound)
        each = 1e3 / found["requests_per_s"]
        parts = {stage: [each * ms / wall] for stage, ms in engine.spent.items()}
        parts["other"] = [each - sum(ms for (ms,) in parts.values())]
        there = stages.arms[arm.text]
        model = predict(stages, arm.text, request.answer_tokens, count, questions=request.questions, **load)
        predicted = model.requests_per_s
        return Measurement(
            arm.text, clients, there.visual, there.kept, there.length, {"request": [each], **parts},
            extra={
                **found, "kv_mib": engine.most_held / 2**20, "predicted_per_s": predicted,
                "prediction_error": predicted / found["requests_per_s"] - 1,
                **({"rate": rate} if rate else {"limit_per_s": self._limit(there, clients)}),
            },
        )  # fmt: skip

    def _limit(self, arm: ArmStages, clients: int) -> float:
        """Requests per second if products ran at the measured ceiling and steps read memory at the measured rate."""
        from sightline.cost.machine import attention_sequences, language_flops, vision_flops

        backbone, request = self.subject.backbone, self.request
        products, bandwidth = self._ceilings()
        sequences = attention_sequences(backbone, backbone.preprocess(self.subject.image(0)))
        tower = vision_flops(backbone, sequences, arm.visual) / request.questions
        language = backbone.language
        weights = sum(p.nbytes for module in (*language.layers, language.head) for p in module.parameters())
        together = min(clients, request.slots)
        step = (weights + together * arm.prompt_bytes) / together / bandwidth
        admitted = (tower + language_flops(backbone, arm.length)) / products
        return 1.0 / (admitted + (request.answer_tokens - 1) * step)

    def _ceilings(self) -> tuple[float, float]:
        """Operations and bytes per second that this device reaches."""
        if not hasattr(self, "_reached"):
            from sightline.cost.benchmarks.answers import read_bandwidth
            from sightline.cost.machine import ceiling

            device, dtype = self.subject.device, self.subject.backbone.language.dtype
            self._reached = ceiling(device, dtype)["tflops"] * 1e12, read_bandwidth(device) * 1e9
        return self._reached

    def _anchor(self, arm: Arm, clients: int) -> dict[str, float]:
        """The language model alone, a prompt of this length for everybody: our slots and transformers' own batching."""
        engine, request = self.engines[arm.text], self.request
        engine.reset()
        engine.alone = self.prefix[arm.text]
        own = drive(engine, request.count(clients), clients=clients)
        engine.alone = None
        length, language = self.prefix[arm.text].embeds.shape[0], self.subject.backbone.language
        with transformers_batching(language, length, request.answer_tokens, clients) as server:
            drive(server, 2 * clients, clients=clients)  # its own warm-up
            theirs = drive(server, request.count(clients), clients=clients)
        rates = [latencies(ended, clients)["requests_per_s"] for ended in (own, theirs)]
        return {"alone_per_s": rates[0], "transformers_per_s": rates[1]}


def powers(most: int) -> list[int]:
    """1, 2, 4, ... and the number itself."""
    return sorted({*(1 << i for i in range(most.bit_length())), most})


@contextmanager
def transformers_batching(language: Any, length: int, tokens: int, clients: int) -> Iterator[Server]:
    """Transformers' continuous batching over a Llama of the language model's sizes, random weights and random prompts."""
    import torch
    from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
    config = LlamaConfig(
        **{name: getattr(language.config, name) for name in sizes},
        head_dim=language.head_width,
        vocab_size=language.config.vocab_size,
        max_position_embeddings=length + tokens,
    )
    with torch.device(language.device):
        model = LlamaForCausalLM._from_config(config, dtype=language.dtype, attn_implementation="sdpa").eval()
    blocks = clients * -(-(length + tokens) // 256) + 1
    settings = ContinuousBatchingConfig(
        num_blocks=blocks,
        max_batch_tokens=max(clients, 4 * length),
        max_requests_per_batch=clients,
        allow_block_sharing=False,
    )
    generation = GenerationConfig(max_new_tokens=tokens, do_sample=False, eos_token_id=-1, pad_token_id=0)
    with model.continuous_batching_context_manager(generation, continuous_batching_config=settings) as manager:
        yield TransformersServer(manager, length, config.vocab_size)


class TransformersServer:
    """The manager as a server; prompts are drawn anew for every request, so that no cache has seen them."""

    def __init__(self, manager: Any, length: int, words: int) -> None:
        import random

        self._manager, self._length, self._words, self._draw = manager, length, words, random.Random(0)
        self._asked: dict[str, Served] = {}

    def now(self) -> float:
        return time.perf_counter()

    def submit(self, request: Served) -> None:
        ids = [self._draw.randrange(16, self._words) for _ in range(self._length)]
        self._asked[self._manager.add_request(ids, streaming=True)] = request

    def turn(self, until: float) -> list[Served]:
        wait = 60.0 if until == math.inf else max(0.0, until - self.now())
        output = self._manager.get_result(timeout=wait)
        if output is None and until == math.inf:
            raise SightlineError(
                "transformers' continuous batching stopped without an answer; --no-anchor leaves it out"
            )
        if output is None:
            return []
        request = self._asked[output.request_id]
        request.told.append(self.now())
        request.tokens = len(output.generated_tokens)
        return [self._asked.pop(output.request_id)] if output.is_finished() else []


# An endpoint: the same client over the wire.


def at_endpoint(benchmark: Load, request: LoadRequest) -> Result:
    """The result of a server elsewhere: nothing is known of its stages, its device or its ceiling."""
    from importlib.metadata import version
    from platform import python_version

    from sightline.arms.arm import parse_arm
    from sightline.auditing.deployed import refuse_arms
    from sightline.engines import engine_of

    servers = [engine_of(each) for each in (request.checkpoint, request.pruned or request.checkpoint)]
    arms = [parse_arm(text) for text in request.arms]
    places: list[Endpoint] = []
    for engine in servers:
        if engine is None:
            raise SightlineError(f"--pruned {request.pruned}: write openai:URL#NAME")
        refuse_arms(arms, engine)
        engine.load()
        places.append(engine)  # type: ignore[arg-type]
    bench = EndpointBench(request)
    points = [
        point
        for arm in sorted(arms, key=lambda arm: not is_full(arm.text))
        for point in bench.measure(arm, places[arm.deployed])
    ]
    versions = {name: version(name) for name in ("torch", "transformers")}
    return {
        "request": request.record(),
        "machine": {"device": "endpoint", "name": places[0].wire.host, "threads": 0, "python": python_version(), **versions},
        "dtype": "not told",
        "kernels": {"attention": "not told", "execution": "endpoint", "scaled_dot_product": {}},
        "note": "images are drawn, each sent once, so that a server's caches have seen none of them",
        "positions": "not told", "box_source": "none", "weights": "served", "picture": list(bench.size), "probes": None,
        "inside_timer": {"request": benchmark.inside["request"]}, "ceiling_tflops": 0.0, "ceiling": None,
        "clocks": {"before": None, "after": None}, "points": [point.as_dict() for point in points],
    }  # fmt: skip


class EndpointBench:
    """All loads of one or two servers."""

    def __init__(self, request: LoadRequest) -> None:
        self.request, self.best, self.sent = request, 0.0, 0
        self.size = request.image_size or (896, 896)
        self.further = {
            f"extra.{name}": value for name, _, value in (each.partition("=") for each in words_of(request.extra))
        }

    def measure(self, arm: Arm, place: Endpoint) -> list[Measurement]:
        request = self.request
        place.check(self.further)
        points = [self._run(arm, place, clients=clients) for clients in request.clients]
        rates = {point.batch: point.extra["requests_per_s"] for point in points}
        if is_full(arm.text):
            self.best = max(rates.values())
        for point in points:
            others = {clients: rate for clients, rate in rates.items() if clients != point.batch}
            if len(others) > 1:
                predicted = law_rate(two_part_law(others), point.batch)
                error = predicted / rates[point.batch] - 1
                point.extra |= {"predicted_per_s": predicted, "prediction_error": error}
        return points + [self._run(arm, place, rate=share * self.best) for share in request.arrivals]

    def _run(self, arm: Arm, place: Endpoint, *, clients: int = 0, rate: float = 0.0) -> Measurement:
        from sightline.engines import Question

        request, first = self.request, self.sent
        count = request.count(clients)
        images = [self._image(first + i) for i in range(-(-(count + clients) // request.questions))]
        self.sent += len(images)

        def ask(number: int) -> Generator[None, None, int]:
            text = f"Question {first + number}: what is shown here? Describe it at length."
            shown = images[number // request.questions]
            return place.stream(Question(text, shown, None, {**self.further, **arm.switches}, request.answer_tokens))

        server = Streaming(ask)
        ended = drive(server, count, clients=clients, rate=rate, seed=request.seed)
        server.drain()
        found = latencies(ended, clients, request.bound)
        extra = {**found, **({"rate": rate} if rate else {})}
        return Measurement(arm.text, clients, 0, 0, 0, {"request": [1e3 / found["requests_per_s"]]}, extra=extra)

    def _image(self, number: int) -> Any:
        """One that nobody has seen: smooth noise of its own seed."""
        import numpy as np
        from PIL import Image

        width, height = self.size
        coarse = np.random.default_rng(number).integers(0, 256, (max(2, height // 8), max(2, width // 8), 3))
        return Image.fromarray(coarse.astype(np.uint8)).resize((width, height), Image.Resampling.BILINEAR)


# What follows from the lines of a card.


def crossover_table(lines: Sequence[Line]) -> FurtherTable:
    """Per pruned arm and answer length: from how many clients on it pays, the most it gains, and what could be gained."""
    found: dict[tuple[Any, ...], list[Line]] = {}
    for each in lines:
        if known(each.get("clients")) and known(each.get("speedup")) and not is_full(each["arm"]):
            found.setdefault((each["execution"], each["arm"], each["batching"]), []).append(each)
    rows: list[Mapping[str, Any]] = []
    for (execution, arm, batching), points in found.items():
        points = sorted(points, key=lambda each: int(each["clients"]))
        best = max(points, key=lambda each: float(each["speedup"]))
        losing = [i for i, each in enumerate(points) if each["speedup"] <= 1.0]
        first = losing[-1] + 1 if losing else 0
        row = {"execution": execution, "arm": arm, "batching": batching}
        row |= {"from_clients": int(points[first]["clients"]) if first < len(points) else None}
        row |= {"best": best["speedup"], "best_at": int(best["clients"])}
        rows.append(row | {key: best[key] for key in ("amdahl", "most") if known(best.get(key))})
    return FurtherTable(
        "crossover",
        "From where pruning pays",
        "From that many clients on every measured load answered more requests per second than the full prefix did; "
        "empty: not even with the most clients. Amdahl and free prefill at the same load.",
        [
            Quantity("execution", "Execution"),
            Quantity("arm", "Arm"),
            Quantity("batching", "Answers"),
            Quantity("from_clients", "Pays from", "count", help="Clients."),
            Quantity("best", "At best", "ratio"),
            Quantity("best_at", "With clients", "count"),
            Quantity("amdahl", "Amdahl", "ratio", help="From single stages, selection free of charge."),
            Quantity("most", "Free prefill", "ratio", help="Were the whole prefill free, with the tower as it is."),
        ],
        rows,
    )


def anchor_table(lines: Sequence[Line]) -> FurtherTable:
    columns = [
        Quantity("arm", "Arm"),
        Quantity("batching", "Answers"),
        Quantity("clients", "Clients", "count"),
        Quantity("length", "Prompt", "count"),
        Quantity("alone_per_s", "Sightline, requests/s", "number"),
        Quantity("transformers_per_s", "transformers, requests/s", "number"),
    ]
    rows = [{c.key: each[c.key] for c in columns} for each in lines if known(each.get("transformers_per_s"))]
    caption = (
        "No tower, no selection: prompts of the arm's length through our slots, and through transformers' continuous "
        "batching with a Llama of the same sizes; the same client drives both, in the same process."
    )
    return FurtherTable("anchor", "The language model alone", caption, columns, rows)
