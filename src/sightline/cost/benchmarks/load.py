"""One engine under load: image to tokens, selection, prefill and decode on one device, with many clients at a time.

Everything of one answer length is measured in one process: before every load the moves of the engine one at a time,
then the load under every arm. What the cost model makes of the moves stands beside what was measured. An endpoint is
driven by the same client.
"""

from __future__ import annotations

import statistics
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from sightline.core.flags import Flag
from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result, in_inference_mode, in_words_of
from sightline.cost.load import (
    Continuous,
    RequestTimes,
    Server,
    Streaming,
    latencies,
    law_rate,
    run_load,
    transformers_batching,
    two_part_law,
)
from sightline.cost.plan import ArmStages, StageTimes, amdahl, crossovers, known, medians, predict, shared_vision
from sightline.cost.request import Measurement, Request, one_request_each, positive_numbers, words_of
from sightline.cost.spread import BatchCurves, FurtherTable, Line, Say, StageBars, is_full, quantities
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from PIL import Image

    from sightline.arms.arm import Arm
    from sightline.core.prefix import Encoded, Prefix
    from sightline.cost.subject import Subject
    from sightline.engines.base import Engine

DRAWN = 4
"""Different images; the engine keeps none of them between requests."""
FEWEST_ROUNDS = 4
"""Requests of every client that count, at least."""
UNDISTURBED = 0.95
"""Of a thread: a process that gets less shares the machine."""
ENDPOINT = "openai:"


def numbers_of_clients(text: str) -> list[dict[str, Any]]:
    return [{"clients": tuple(positive_numbers(text, "--clients"))}]


def shares_of_load(text: str) -> list[dict[str, Any]]:
    try:
        shares = tuple(float(part) for part in words_of(text))
    except ValueError:
        shares = (0.0,)
    if not all(0.001 <= share <= 1000 for share in shares):
        raise SightlineError(f"--arrivals {text}: give numbers from 0.001 to 1000, separated by commas, or nothing")
    return [{"arrivals": shares}]


class LoadRequest(Request):
    profile: bool = False
    clients: Annotated[tuple[int, ...], Flag(read=numbers_of_clients, usual="1,2,4,8,16,32,64")] = Field(
        (1,), description="Clients of the closed loop, comma-separated: each asks again as soon as it was answered."
    )
    arrivals: Annotated[tuple[float, ...], Flag(read=shares_of_load, usual="0.5,0.8")] = Field(
        (), description="Open loop: arrivals, as shares of the most requests per second of the full prefix; or nothing."
    )
    answer_tokens: Annotated[
        int, Flag(name="--tokens", read=one_request_each("answer_tokens", "--tokens"), usual="8,32,128")
    ] = Field(8, description="Tokens of every answer; several, separated by commas, are measured one after the other.")
    questions: Annotated[int, Flag(read=one_request_each("questions", "--questions"), usual="1,4")] = Field(
        1, description="Questions in a row about one image, likewise."
    )
    requests: int = Field(32, ge=1, description="Requests that count in a run, at least; four per client otherwise.")
    slots: int = Field(64, ge=1, description="Sequences that a step continues side by side.")
    together: int = Field(4, ge=1, description="Requests that are admitted at a time, between two steps.")
    ttft_bound: float = Field(1000.0, ge=0, description="Milliseconds to the first token that a good request keeps.")
    token_bound: float = Field(50.0, ge=0, description="Milliseconds between tokens, in the mean, that it keeps.")
    seed: int = Field(17, description="Of the arrivals.")
    anchor: bool = Field(True, description="Also time transformers' continuous batching, on the language model alone.")
    pruned: str = Field(
        "", description="Of an endpoint: a second server that prunes, openai:URL#NAME; --model does not."
    )
    extra: str = Field("", description="Of an endpoint: further fields of every request, NAME=VALUE, comma-separated.")

    @model_validator(mode="before")
    @classmethod
    def _arms_of_an_endpoint(cls, values: dict[str, Any]) -> dict[str, Any]:
        if str(values.get("checkpoint")).startswith(ENDPOINT) and tuple(values.get("arms", ())) == Load.arms:
            return {**values, "arms": ("full", "engine:default") if values.get("pruned") else ("full",)}
        return values

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if (self.pruned or self.extra) and not self.endpoint:
            raise SightlineError("--pruned and --extra are for endpoints: --model openai:URL#NAME")
        if self.pruned and not self.pruned.startswith(ENDPOINT):
            raise SightlineError(f"--pruned {self.pruned}: write openai:URL#NAME")
        if wrong := [each for each in words_of(self.extra) if "=" not in each]:
            raise SightlineError(f"--extra {wrong[0]} sets nothing: write NAME=VALUE, several separated by commas")
        if self.endpoint and not self.pruned and "engine:default" in self.arms:
            raise SightlineError("engine:default sets no switch and would be full again: name a server with --pruned")
        if self.arrivals and not any(map(is_full, self.arms)):
            raise SightlineError("--arrivals are shares of what the full prefix reaches: add --arm full, or give none")
        return self

    @property
    def endpoint(self) -> bool:
        return self.checkpoint.startswith(ENDPOINT)

    def record(self) -> dict[str, Any]:
        """Of an endpoint the name of the model alone."""
        known = super().record()
        return {**known, "checkpoint": self.checkpoint.rpartition("#")[2], "pruned": ""} if self.endpoint else known

    def driven(self, server: Server, clients: int, rate: float = 0.0) -> tuple[list[RequestTimes], dict[str, Any]]:
        """The requests of one load, and its figures."""
        ended = run_load(server, self.count(clients), clients=clients, rate=rate, seed=self.seed)
        figures = latencies(ended, clients, self.ttft_bound, self.token_bound)
        return ended, {**figures, **({"rate": rate} if rate else {})}

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
    kept = "The JSON file has the figures of every load and its stages, not each request by itself."
    chart = (
        BatchCurves(
            (
                ("requests_per_s", "Requests/s"),
                ("speedup", "Ratio to full"),
                ("goodput_per_s", "Good requests/s"),
                ("ttft_p99_ms", "First token p99, ms"),
            ),
            over="clients",
        ),
        StageBars("Where a request's time goes, with the most clients", whole=("request",), most=True),
    )

    def measure(self, request: LoadRequest, subject: Subject) -> Iterator[Measurement]:
        from sightline.backbones.attention import without_planned_kernels
        from sightline.backbones.execution import use_execution, use_vision_execution

        if not subject.backbone.language.plain:
            raise SightlineError("this model's own decoder answers one request at a time: there is no load to measure")
        arms = [subject.arm(text, request.execution) for text in request.arms]
        execution = use_execution(subject.backbone.language, request.execution, dynamic=True)
        use_vision_execution(subject.backbone, execution)
        with without_planned_kernels():
            points = list(Bench(request, subject, arms).measure())
        order = [arm.text for arm in arms]
        return iter(sorted(points, key=lambda point: order.index(point.arm)))

    def elsewhere(self, request: LoadRequest) -> Result | None:
        return at_endpoint(self, request) if request.endpoint else None

    def batching(self, request: dict[str, Any]) -> str:
        asked = f", {request['questions']} questions an image" if request["questions"] > 1 else ""
        return f"answers of {request['answer_tokens']} tokens{asked}"

    def batch_words(self, results: Sequence[Result]) -> str:
        request = results[0]["request"]
        own = f"{request['slots']} slots, up to {request['together']} requests admitted at a time"
        return own if results[0]["ceiling"] else "the server's own"

    def figures(self, point: dict[str, Any], result: Result) -> dict[str, Any]:
        extra = {key: value for key, value in point["extra"].items() if key != "stages"}
        return {**extra, **({"clients": point["batch"]} if point["batch"] else {"speedup": None})}

    def further_tables(self, lines: Sequence[Line]) -> list[FurtherTable]:
        told = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["tables"]
        anchors = [each for each in lines if known(each.get("transformers_per_s"))]
        return [
            FurtherTable(name, told[name]["title"], told[name]["caption"], quantities(told[name]["columns"]), rows)
            for name, rows in (("crossover", crossovers(lines)), ("anchor", anchors))
            if rows
        ]

    def sentence(self, lines: Sequence[Line], say: Say) -> str:
        parts = [
            f"{row['arm']} ({row['batching']}) has {say(row['best'], 'ratio')} the full prefix's requests at best, "
            f"with {row['best_at']} client{'s' * (row['best_at'] != 1)}, and "
            + ("pays nowhere" if row["from_clients"] is None else f"pays from {row['from_clients']} on")
            for row in crossovers(lines)
        ]
        errors = [abs(line["prediction_error"]) for line in lines if known(line.get("prediction_error"))]
        if errors:
            parts.append(f"the cost model's median error over {len(errors)} points is {statistics.median(errors):.1%}")
        shares = [line["failed"] / (line["failed"] + line["requests"]) for line in lines if known(line.get("failed"))]
        if shares:
            parts.append(f"up to {max(shares):.0%} of a load's requests failed, and ratios are of what was answered")
        text = "; ".join(parts)
        had = sorted(line["host_share"] for line in lines if known(line.get("host_share")))
        busy = (
            f"Other work ran on this machine: while it was timed the process had {had[0]:.0%} to {had[-1]:.0%} of a "
            "thread, so that ratios mean little. "
            if had and had[0] < UNDISTURBED
            else ""
        )
        return f"{busy}Under load {text}." if text else ""


class OwnEngine(Continuous):
    """Sightline's own engine as a server: its backbone, its selectors, its decoding in slots."""

    def __init__(self, bench: Bench, arm: Arm) -> None:
        self.arm, self.bench, self.subject = arm, bench, bench.subject
        self.encoded: dict[int, Encoded] = {}
        self.alone: Prefix | None = None
        """What everybody asks, where the language model alone is measured."""
        request = bench.request
        super().__init__(request.slots, request.together, request.answer_tokens, request.questions)

    def reset(self) -> None:
        super().reset()
        self.encoded.clear()
        self._watches: list[tuple[str, Any]] = []
        self.bench.slots.active.fill_(False)

    @cached_property
    def token_bytes(self) -> int:
        from sightline.cost.machine import token_bytes

        return token_bytes(self.subject.backbone.language)

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

    def prefixes(self, new: Sequence[RequestTimes]) -> tuple[list[Prefix], Any]:
        """What the language model reads for these requests, and what cuts between its layers."""
        backbone, fresh = self.subject.backbone, self.fresh(new)
        with self._timed("preprocess"):
            images = [self.bench.drawn[image % DRAWN] for image in fresh]
            pixels = [backbone.preprocess(image, budget=self.arm.image_budget) for image in images]
        with self._timed("tower"):
            if fresh:
                self.encoded.update(zip(fresh, backbone.encode(pixels, self.arm.selector.needs), strict=True))
        with self._timed("select"):
            asked = [divmod(request.number, self.questions) for request in new]
            probes = [self.subject.probe(image % DRAWN, question) for image, question in asked]
            passed = self.subject.over(self.arm, [self.encoded[image] for image, _ in asked], probes)
            prefixes = [passed.prefix(i) for i in range(len(new))]
            for image, question in asked:
                if question == self.questions - 1:
                    del self.encoded[image]
        return prefixes, passed.cutter(range(len(new)), prefixes)

    @in_inference_mode
    def admit(self, places: Sequence[int], new: Sequence[RequestTimes]) -> list[int]:
        language = self.subject.backbone.language
        prefixes, cutter = self.prefixes(new) if self.alone is None else ([self.alone] * len(new), None)
        with self._timed("prefill"):
            kept = language.keep(prefixes, cutter)
            self.bench.slots.put(list(places), kept, list(range(len(new))))
        positions = kept.lengths.sum(0).tolist()  # waits: the first tokens are there
        self._settle()
        return [count * self.token_bytes // len(language.layers) for count in positions]

    def step(self, among: int) -> None:
        with self._timed("decode"):
            self.bench.slots.step(among=self.bench.among(among))
        self.bench.slots.newest.tolist()  # every token is told as soon as it is there
        self._settle()


class Bench:
    """All of one process: moves of the engine one at a time, and loads."""

    def __init__(self, request: LoadRequest, subject: Subject, arms: Sequence[Arm]) -> None:
        from sightline.backbones.decoding import Slots

        self.request, self.subject = request, subject
        self.drawn = [subject.image(i) for i in range(DRAWN)]
        self.prefix: dict[str, Prefix] = {}
        self.visual: dict[str, int] = {}
        for arm in arms:
            self.prefix[arm.text], self.visual[arm.text] = self._prefix(arm)
        room = max(prefix.embeds.shape[0] for prefix in self.prefix.values()) + request.answer_tokens
        self.slots = Slots(subject.backbone.language, request.slots, room, request.answer_tokens, frozenset())
        self.engines = {arm.text: OwnEngine(self, arm) for arm in arms}

    @in_inference_mode
    def _prefix(self, arm: Arm) -> tuple[Prefix, int]:
        backbone = self.subject.backbone
        pixels = backbone.preprocess(self.drawn[0], budget=arm.image_budget)
        (encoded,) = backbone.encode([pixels], arm.selector.needs)
        return self.subject.over(arm, [encoded]).prefix(0), encoded.full_n

    @property
    def powers(self) -> bool:
        """Captured steps have a power of two of slots, so that there are few."""
        return self.subject.device.type == "cuda"

    def among(self, count: int) -> int:
        return min(self.request.slots, 1 << (count - 1).bit_length()) if self.powers else count

    def stages(self) -> StageTimes:
        """Every move of the engine by itself: admissions of 1, 2, 4, ... requests, steps of 1, 2, 4, ... slots.

        Means, not medians: what a load takes is a sum of them, and what disturbs one of five moves is part of it.
        """
        request, engine = self.request, next(iter(self.engines.values()))
        arms = {text: self._admissions(engine) for text, engine in self.engines.items()}
        ways = {text: (each.arm.image_budget, each.arm.selector.needs) for text, each in self.engines.items()}
        for way in set(ways.values()):
            group = [text for text in arms if ways[text] == way]
            arms |= dict(zip(group, shared_vision([arms[text] for text in group]), strict=True))
        lengths = [arm.length for arm in arms.values()]
        ends = (min(lengths), max(lengths) + request.answer_tokens - 1)
        widest = request.slots if request.arrivals else min(request.slots, max(request.clients))
        steps = {count: {cached: self._step(engine, count, cached) for cached in ends} for count in doubling(widest)}
        return StageTimes(arms, steps, engine.token_bytes, request.slots, request.together, self.powers, self._where)

    @cached_property
    def _where(self) -> str:
        from sightline.cost.machine import machine_facts

        facts, request = machine_facts(self.subject.device), self.request
        device = facts["name"] if self.powers else f"a CPU without a GPU, {facts['name']}, {facts['threads']} threads"
        return f"{device}: {request.config or Path(request.checkpoint).name}, {request.execution}"

    def _moves(self, engine: OwnEngine, move: Callable[[], object], cached: int = 0) -> dict[str, float]:
        """Mean milliseconds of every stage of a move, of the whole as ``total``, what is between as ``other``."""
        taken: list[dict[str, float]] = []
        for _ in range(self.request.warm_up + self.request.repeats):
            engine.reset()
            for tensor, value in ((self.slots.lengths, cached), (self.slots.positions, cached), (self.slots.said, 1)):
                tensor.fill_(value)
            started = time.perf_counter()
            move()
            total = (time.perf_counter() - started) * 1e3
            taken.append({**engine.spent, "other": total - sum(engine.spent.values()), "total": total})
        kept = taken[self.request.warm_up :]
        return {stage: statistics.fmean(each[stage] for each in kept) for stage in kept[0]}

    def _admissions(self, engine: OwnEngine) -> ArmStages:
        prefix, held, found = self.prefix[engine.arm.text], [0], dict[int, dict[str, float]]()
        for count in doubling(self.request.together):
            new = [RequestTimes(i * self.request.questions, 0.0) for i in range(count)]
            found[count] = self._moves(engine, partial(engine.admit, range(count), new))
            held = engine.admit(range(count), new)
        return ArmStages(self.visual[engine.arm.text], prefix.k, prefix.embeds.shape[0], held[0], found)

    def _step(self, engine: OwnEngine, count: int, cached: int) -> float:
        """Milliseconds of a step of so many slots, each behind so many tokens, whatever they are."""
        return self._moves(engine, partial(engine.step, count), cached)["total"]

    def measure(self) -> Iterator[Measurement]:
        """Load by load, all arms under each, the full prefix first: arrivals and Amdahl's law go by it."""
        request, best, every = self.request, 0.0, list[StageTimes]()
        arms = sorted(self.engines, key=lambda text: not is_full(text))
        points: list[Measurement] = []
        self.stages()  # whatever a first time costs
        for clients in request.clients:
            every.append(self.stages())
            full: dict[str, float] | None = None
            for arm in arms:
                point = self._run(arm, every[-1], clients)
                if is_full(arm):
                    best = max(best, point.extra["requests_per_s"])
                    full = {name: ms for name, (ms,) in point.samples_ms.items() if name != "request"}
                elif full:
                    law, most = amdahl(every[-1], arm, full, clients)
                    point.extra |= {"amdahl": law, "most": most}
                if request.anchor and clients == max(request.clients):
                    point.extra |= self._anchor(arm, clients)
                points.append(point)
        for share in request.arrivals:
            every.append(self.stages())
            points += [self._run(arm, every[-1], 0, share * best) for arm in arms]
        points[0].extra["stages"] = medians(every).as_dict()
        yield from points

    def _run(self, arm: str, stages: StageTimes, clients: int, rate: float = 0.0) -> Measurement:
        request, engine, there = self.request, self.engines[arm], stages.arms[arm]
        engine.reset()
        started, used = engine.now(), time.process_time()
        ended, found = request.driven(engine, clients, rate)
        wall, used = ended[-1].ended - started, time.process_time() - used
        each = 1e3 / found["requests_per_s"]
        parts = {stage: [each * ms / wall / 1e3] for stage, ms in engine.spent.items()}
        parts["other"] = [each - sum(ms for (ms,) in parts.values())]
        load: dict[str, Any] = {"clients": clients, "rate": rate, "seed": request.seed}
        predicted, _ = predict(stages, arm, request.answer_tokens, len(ended), questions=request.questions, **load)
        extra = {
            **found,
            "kv_mib": engine.most_held / 2**20,
            "predicted_per_s": predicted,
            "prediction_error": predicted / found["requests_per_s"] - 1,
        }
        if clients:
            extra["limit_per_s"] = self._limit(there, clients)
            extra |= {} if self.powers else {"host_share": used / wall}
        timed = {"request": [each], **parts}
        return Measurement(arm, clients, there.visual, there.kept, there.length, timed, extra=extra)

    def _limit(self, arm: ArmStages, clients: int) -> float:
        """Requests per second if products ran at the measured ceiling and steps read memory at the measured rate."""
        from sightline.cost.machine import attention_sequences, language_flops, step_weights, vision_flops

        backbone, request = self.subject.backbone, self.request
        products, bandwidth = self._ceilings
        sequences = attention_sequences(backbone, backbone.preprocess(self.drawn[0]))
        tower = vision_flops(backbone, sequences, arm.visual) / request.questions
        step = (step_weights(backbone.language) / min(clients, request.slots) + arm.prompt_bytes) / bandwidth
        admitted = (tower + language_flops(backbone, arm.length)) / products
        return float(1 / (admitted + (request.answer_tokens - 1) * step))

    @cached_property
    def _ceilings(self) -> tuple[float, float]:
        """Operations and bytes per second that this device reaches."""
        from sightline.cost.machine import ceiling, read_bandwidth

        device, dtype = self.subject.device, self.subject.backbone.language.dtype
        return ceiling(device, dtype)["tflops"] * 1e12, read_bandwidth(device) * 1e9

    def _anchor(self, arm: str, clients: int) -> dict[str, float]:
        """The language model alone, a prompt of this length for everybody: our slots and transformers' own batching."""
        engine, prefix = self.engines[arm], self.prefix[arm]
        engine.reset()
        engine.alone = prefix
        own = self.request.driven(engine, clients)[1]
        engine.alone = None
        tokens, language = self.request.answer_tokens, self.subject.backbone.language
        with transformers_batching(language, prefix.embeds.shape[0], tokens, clients) as server:
            run_load(server, 2 * clients, clients=clients)  # whatever a first time costs
            theirs = self.request.driven(server, clients)[1]
        return {"alone_per_s": own["requests_per_s"], "transformers_per_s": theirs["requests_per_s"]}


def doubling(most: int) -> list[int]:
    """1, 2, 4, ... and the number itself."""
    return sorted({*(1 << i for i in range(most.bit_length())), most})


# An endpoint: the same client over the wire.


def at_endpoint(benchmark: Load, request: LoadRequest) -> Result:
    """The result of a server elsewhere: nothing is known of its stages, its device or its ceiling."""
    from importlib.metadata import version
    from platform import python_version

    from sightline.arms.arm import parse_arm
    from sightline.auditing.engine_worker import refuse_arms
    from sightline.engines.base import JPEG, engine_of

    arms = [parse_arm(text) for text in request.arms]
    for arm in arms:
        if not (is_full(arm.text) or arm.deployed) or arm.intervention is not None or JPEG in arm.switches:
            raise SightlineError(f"arm '{arm.text}' under load: servers take full and engine:SWITCH=VALUE alone")
    plain, pruning = (engine_of(each) for each in (request.checkpoint, request.pruned or request.checkpoint))
    assert plain is not None
    assert pruning is not None
    for place in (plain, pruning):
        refuse_arms(arms, place)
        place.load()
    bench = EndpointBench(request)
    ordered = [(arm, pruning if arm.deployed else plain) for arm in sorted(arms, key=lambda arm: not is_full(arm.text))]
    for arm, place in ordered:
        place.check({**bench.further, **arm.switches})
    points = [point for arm, place in ordered for point in bench.measure(arm, place)]
    software = {"python": python_version(), **{name: version(name) for name in ("torch", "transformers")}}
    return {
        "request": request.record(),
        "machine": {"device": "endpoint", "name": plain.facts()["host"], "threads": 0, **software},
        "dtype": "not told",
        "kernels": {"attention": "not told", "execution": "endpoint", "scaled_dot_product": {}},
        "note": "; ".join(
            ["every image is drawn and sent for its own questions alone, so that no cache has seen it", *bench.lost]
        ),
        "positions": "not told",
        "box_source": "none",
        "weights": "served",
        "picture": list(bench.size),
        "inside_timer": {"request": benchmark.inside["request"]},
        "ceiling_tflops": 0.0,
        "ceiling": None,
        "clocks": {"before": None, "after": None},
        "points": [point.as_dict() for point in points],
    }


class EndpointBench:
    """All loads of one or two servers."""

    def __init__(self, request: LoadRequest) -> None:
        self.request, self.best, self.drawn = request, 0.0, 0
        self.lost: list[str] = []
        """Loads that no request survived, behind others that did."""
        self._measured = False
        self.size = request.image_size or (896, 896)
        pairs = (each.partition("=") for each in words_of(request.extra))
        self.further = {f"extra.{name}": value for name, _, value in pairs}

    def measure(self, arm: Arm, place: Engine) -> list[Measurement]:
        points = [point for clients in self.request.clients for point in self._run(arm, place, clients)]
        rates = {point.batch: float(point.extra["requests_per_s"]) for point in points}
        if is_full(arm.text):
            self.best = max(rates.values(), default=0.0)
        for point in points:
            others = {clients: rate for clients, rate in rates.items() if clients != point.batch}
            if len(others) > 1:
                predicted = law_rate(two_part_law(others), point.batch)
                error = predicted / rates[point.batch] - 1
                point.extra |= {"predicted_per_s": predicted, "prediction_error": error}
        shares = self.request.arrivals if self.best else ()
        return points + [point for share in shares for point in self._run(arm, place, 0, share * self.best)]

    def _run(self, arm: Arm, place: Engine, clients: int, rate: float = 0.0) -> list[Measurement]:
        """One load; none where all of its requests fail, unless nothing was measured before it."""
        from sightline.engines.base import Question

        request, switches = self.request, {**self.further, **arm.switches}
        streams = []  # made ready before any clock runs
        for number in range(request.count(clients) + clients):
            if number % request.questions == 0:
                self.drawn += 1
            text = f"Question {self.drawn}-{number}: what is shown here? Describe it at length."
            asked = Question(text, self._image(self.drawn), None, switches, request.answer_tokens)
            streams.append(place.stream(asked))
        server = Streaming(streams.__getitem__)
        try:
            _, found = request.driven(server, clients, rate)
            server.drain()
        except SightlineError as error:
            if not self._measured:
                raise
            load = f"{clients} clients" if clients else f"{rate:.3g} arrivals a second"
            self.lost.append(f"{arm.text} with {load} was not measured: {error}")
            return []
        self._measured = True
        return [Measurement(arm.text, clients, 0, 0, 0, {"request": [1e3 / found["requests_per_s"]]}, extra=found)]

    def _image(self, number: int) -> Image.Image:
        """One that nobody has seen: squares of 8 pixels in colours of its own seed, small as a PNG."""
        import numpy as np
        from PIL import Image

        coarse = np.random.default_rng(number).integers(0, 256, (self.size[1] // 8 + 1, self.size[0] // 8 + 1, 3))
        return Image.fromarray(coarse.astype(np.uint8)).resize(self.size, Image.Resampling.NEAREST)
