"""A model of cost: from what the moves of an engine take, requests per second at any load, budget and answer length.

The model is the engine's own loop (``Continuous``) with a played clock: an admission takes what its stages took in the
measuring process, a step what steps of so many slots behind so many tokens took; between measured sizes lines are
drawn. Nothing else is fitted.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from sightline.cost.load import Continuous, RequestTimes, latencies, run_load
from sightline.cost.spread import Line, is_full
from sightline.errors import SightlineError

STAGES = ("preprocess", "tower", "select", "prefill", "other")
"""Of an admission: ``other`` is what the host did between the others."""
PER_IMAGE = ("preprocess", "tower")
PLAYED = 256
"""Requests that a plan plays, or eight per client where those are more: enough for the way in to count for nothing."""


MOST_PLAYED = 5_000_000
"""Tokens, all requests together, that a plan plays in seconds."""


def line(points: Mapping[int, float], at: float) -> float:
    """The time there: on the line through the two nearest points, beyond them on that of the last two.

    Beyond them more work takes no less time, and less work no more, whichever way the last two happen to lie.
    """
    known = sorted(points)
    if len(known) == 1:
        return max(0.0, points[known[0]])
    right = next((i for i in range(1, len(known)) if known[i] >= at), len(known) - 1)
    low, high = known[right - 1], known[right]
    value = points[low] + (points[high] - points[low]) * (at - low) / (high - low)
    if at > known[-1]:
        value = max(value, points[known[-1]])
    elif at < known[0]:
        value = min(value, points[known[0]])
    return max(0.0, value)


Count = Annotated[int, Field(ge=1)]
Milliseconds = Annotated[float, Field(allow_inf_nan=False)]
"""What is left between two clocks may be less than nothing."""
StepTime = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class ArmStages:
    """What admitting takes under one arm."""

    visual: Count
    kept: Count
    length: Count
    """Positions of a prompt."""
    prompt_bytes: Count
    """Keys and values of a prompt, all layers."""
    admissions: Annotated[Mapping[int, Mapping[str, Milliseconds]], Field(min_length=1)]
    """Requests admitted together -> stage -> milliseconds of all of them, each with an image of its own."""

    def __post_init__(self) -> None:
        if missing := [each for each in STAGES if any(each not in stages for stages in self.admissions.values())]:
            raise ValueError(f"no milliseconds of {', '.join(missing)}")

    def ms(self, stage: str, count: int) -> float:
        return line({b: stages[stage] for b, stages in self.admissions.items()}, count) if count else 0.0


@dataclass(frozen=True)
class StageTimes:
    """What was measured of one engine, in one process, one move at a time."""

    arms: Mapping[str, ArmStages]
    steps: Annotated[Mapping[int, Annotated[Mapping[int, StepTime], Field(min_length=1)]], Field(min_length=1)]
    """Slots -> tokens behind each -> milliseconds of a step."""
    token_bytes: Count
    slots: Count
    together: Count
    powers: bool
    """Whether a step is as large as the next power of two, as captured ones are."""
    facts: str = ""
    """What it was measured on."""

    def among(self, count: int) -> int:
        return min(self.slots, 1 << (count - 1).bit_length()) if self.powers else count

    def step_ms(self, count: int, length: float) -> float:
        return line({n: line(by_length, length) for n, by_length in self.steps.items()}, self.among(count))

    def arm(self, text: str) -> ArmStages:
        """Those of an arm; of a budget that was not measured, the method's own with a prefill of that length.

        The prefill's time is on the line through the measured lengths, all arms taken together in whose prompts every
        layer reads the same tokens. A method that prunes between layers, or shows a smaller image, costs something
        else at another budget than a shorter prompt.
        """
        from sightline.arms.arm import parse_arm

        if text in self.arms:
            return self.arms[text]
        wanted = parse_arm(text)
        if wanted.text in self.arms:
            return self.arms[wanted.text]
        alike = {name: each for name, each in self.arms.items() if each.prompt_bytes == each.length * self.token_bytes}
        method = text.partition(":")[0]
        same = [each for name, each in alike.items() if name.partition(":")[0] == method and each.kept < each.visual]
        if not same or wanted.selector.resizes or wanted.intervention is not None:
            raise SightlineError(
                f"the card has no stages of {text}; it has {', '.join(self.arms)}, and other budgets of those "
                "that shorten the prompt before it is read"
            )
        kept = wanted.budget.resolve(same[0].visual)
        near = min(same, key=lambda each: abs(each.kept - kept))
        length = near.length - near.kept + kept
        admissions = {
            count: {**stages, "prefill": line(self._prefills(list(alike.values()), count), length)}
            for count, stages in near.admissions.items()
        }
        return replace(
            near,
            kept=kept,
            length=length,
            prompt_bytes=near.prompt_bytes * length // near.length,
            admissions=admissions,
        )

    @staticmethod
    def _prefills(arms: Sequence[ArmStages], count: int) -> dict[int, float]:
        """Length -> milliseconds of a prefill, the mean where several arms have that length."""
        lengths = {each.length for each in arms}
        return {n: statistics.fmean(each.ms("prefill", count) for each in arms if each.length == n) for n in lengths}

    def reaches(self, arm: ArmStages, tokens: int, clients: int) -> bool:
        """Whether steps were measured with so many slots, behind so many tokens."""
        lengths = [length for by_length in self.steps.values() for length in by_length]
        return arm.length + tokens - 1 <= max(lengths) and self.among(min(clients, self.slots)) <= max(self.steps)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(values: Any) -> StageTimes:
        """Back from JSON, whose keys are words; refused where no engine could have these times."""
        try:
            return TypeAdapter(StageTimes).validate_python(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise SightlineError(f"the card's stages are damaged ({where}: {first['msg']}); measure again") from None


def medians(every: Sequence[StageTimes]) -> StageTimes:
    """Of stages that were measured several times, number by number."""

    def middle(values: Sequence[Any]) -> Any:
        first = values[0]
        if isinstance(first, Mapping):
            return {key: middle([each[key] for each in values]) for key in first}
        return statistics.median(values) if isinstance(first, float) else first

    return StageTimes.from_dict(middle([each.as_dict() for each in every]))


def shared_vision(arms: Sequence[ArmStages]) -> Iterator[ArmStages]:
    """Arms whose images take the same way, each with the mean of what all of them took on it."""
    for arm in arms:
        same = {
            count: {stage: statistics.fmean(each.admissions[count][stage] for each in arms) for stage in PER_IMAGE}
            for count in arm.admissions
        }
        yield replace(arm, admissions={count: {**arm.admissions[count], **same[count]} for count in same})


def stages_on(results: Sequence[Mapping[str, Any]]) -> StageTimes:
    """Those of a card, of the process with the longest answers: its steps reach farthest."""
    longest = sorted(results, key=lambda result: int(result["request"].get("answer_tokens", 0)), reverse=True)
    for result in longest:
        for point in result["points"]:
            if "stages" in point["extra"]:
                return StageTimes.from_dict(point["extra"]["stages"])
    raise SightlineError("the card has no stages to plan from; measure with sightline bench load, no endpoint")


class Modelled(Continuous):
    """An engine that does nothing but let its clock run as long as the stages say."""

    def __init__(self, stages: StageTimes, arm: str, tokens: int, questions: int = 1) -> None:
        super().__init__(stages.slots, stages.together, tokens, questions)
        self.stages, self.arm = stages, stages.arm(arm)
        self._clock = 0.0

    @property
    def token_bytes(self) -> int:
        return self.stages.token_bytes

    def now(self) -> float:
        return self._clock

    def wait(self, until: float) -> None:
        self._clock = max(self._clock, until)

    def _pass(self, stage: str, ms: float) -> None:
        self.spent[stage] = self.spent.get(stage, 0.0) + ms
        self._clock += ms / 1e3

    def admit(self, places: Sequence[int], new: Sequence[RequestTimes]) -> list[int]:
        images = len(self.fresh(new))
        for stage in STAGES:
            self._pass(stage, self.arm.ms(stage, images if stage in PER_IMAGE else len(new)))
        return [self.arm.prompt_bytes] * len(new)

    def step(self, among: int) -> None:
        said = sum(request.tokens for request in self.seated.values()) / len(self.seated)
        self._pass("decode", self.stages.step_ms(among, self.arm.length + said - 1))


def predict(
    stages: StageTimes, arm: str, tokens: int, count: int, *, questions: int = 1, **load: Any
) -> tuple[float, dict[str, float]]:
    """Requests per second of so many under a load, described as ``drive`` takes it, and every stage's share of what the
    engine was busy with."""
    server = Modelled(stages, arm, tokens, questions)
    ended = run_load(server, count, **load)
    busy = sum(server.spent.values())
    shares = {stage: ms / busy for stage, ms in server.spent.items()}
    return latencies(ended, load.get("clients", 0))["requests_per_s"], shares


def amdahl(stages: StageTimes, arm: str, spent: Mapping[str, float], clients: int) -> tuple[float, float]:
    """(law, most): what Amdahl's law gives an arm, and were the whole prefill free, from the full prefix under load.

    ``spent`` has the milliseconds per request of every stage of the full prefix with so many clients. Of their sum T
    prefill and decode become shorter, a and b times by what single admissions and steps say, and all else stays:
    T / (T - prefill (1 - 1/a) - decode (1 - 1/b)). Selection costs nothing here, so what is measured stays below.
    """
    full, pruned = stages.arm(full_arm(stages)), stages.arm(arm)
    together, whole = min(stages.together, clients), sum(spent.values())
    prefill = pruned.ms("prefill", together) / full.ms("prefill", together)
    slots = min(stages.slots, clients)
    step = stages.step_ms(slots, pruned.length) / stages.step_ms(slots, full.length)
    saved = spent["prefill"] * (1 - min(1.0, prefill)) + spent.get("decode", 0.0) * (1 - min(1.0, step))
    return whole / (whole - saved), whole / (whole - spent["prefill"])


def full_arm(stages: StageTimes) -> str:
    found = next((name for name in stages.arms if is_full(name)), None)
    if found is None:
        raise SightlineError(
            "nothing was measured of the full prefix, which everything is compared with; add --arm full"
        )
    return found


def plan(stages: StageTimes, arm: str, tokens: int, clients: int, questions: int = 1) -> str:
    """What a budget saves at this load, in words."""
    count, load = clients + max(PLAYED, 8 * clients), {"clients": clients, "questions": questions}
    if count * tokens > MOST_PLAYED:
        raise SightlineError(
            f"{count} answers of {tokens} tokens, enough to tell what {clients} clients do, are more than can be "
            f"played ({MOST_PLAYED} tokens); ask for fewer --clients or --tokens"
        )
    there = stages.arm(arm)
    full, whole = predict(stages, full_arm(stages), tokens, count, **load)
    pruned, left = predict(stages, arm, tokens, count, **load)
    itself = "" if there in stages.arms.values() else ", which was not measured itself,"
    beyond = (
        ""
        if all(stages.reaches(each, tokens, clients) for each in (there, stages.arm(full_arm(stages))))
        else " No step was measured with so many slots or tokens: beyond those that were, lines go on."
    )
    shares = ", ".join(f"{stage} {left.get(stage, 0.0):.0%}" for stage in (*STAGES, "decode"))
    return (
        f"At {clients} clients and answers of {tokens} tokens {arm}{itself} keeps {there.kept} of {there.visual} "
        f"visual tokens and is predicted to answer {pruned:.3g} requests a second, the full prefix {full:.3g}: "
        f"{pruned / full:.2f}x. Of the engine's time that is left, {shares}. Prefill is {whole['prefill']:.0%} of the "
        f"full prefix's time, so that no budget gains more than {1 / (1 - whole['prefill']):.2f}x by it. From stages "
        f"measured on {stages.facts}; nothing else is known to be like it.{beyond}"
    )


def known(value: Any) -> bool:
    return value is not None and value == value


def crossovers(lines: Sequence[Line]) -> list[Mapping[str, Any]]:
    """Per pruned arm and answer length: from how many clients on it pays, the most it gains, what could be gained."""
    found: dict[tuple[Any, ...], list[Line]] = {}
    for each in lines:
        if known(each.get("clients")) and known(each.get("speedup")) and not is_full(each["arm"]):
            found.setdefault((each["execution"], each["arm"], each["batching"]), []).append(each)
    rows: list[Mapping[str, Any]] = []
    for (execution, arm, batching), points in found.items():
        points.sort(key=lambda each: int(each["clients"]))
        best = max(points, key=lambda each: float(each["speedup"]))
        first = max((i + 1 for i, each in enumerate(points) if each["speedup"] <= 1.0), default=0)
        pays = int(points[first]["clients"]) if first < len(points) else None
        row = {"execution": execution, "arm": arm, "batching": batching, "from_clients": pays}
        row |= {"best": best["speedup"], "best_at": int(best["clients"])}
        rows.append(row | {key: best[key] for key in ("amdahl", "most") if known(best.get(key))})
    return rows
