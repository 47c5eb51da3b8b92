"""A model of cost: from what the moves of an engine take, requests per second at any load, budget and answer length.

The model is the engine's own loop (``Continuous``) with a played clock: an admission takes what its stages took in the
measuring process, a step what steps of so many slots behind so many tokens took; between measured sizes lines are
drawn. Nothing else is fitted.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sightline.cost.load import Continuous, Visit, drive, latencies
from sightline.cost.spread import Line, is_full
from sightline.errors import SightlineError

STAGES = ("preprocess", "tower", "select", "prefill", "other")
"""Of an admission: ``other`` is what the host did between the others."""
PER_IMAGE = ("preprocess", "tower")
PLAYED = 256
"""Requests that a plan plays, or eight per client where those are more: enough for the way in to count for nothing."""


def line(points: Mapping[int, float], at: float) -> float:
    """The value there: on the line through the two nearest points, beyond them on that of the last two."""
    known = sorted(points)
    if len(known) == 1:
        return points[known[0]]
    right = next((i for i in range(1, len(known)) if known[i] >= at), len(known) - 1)
    low, high = known[right - 1], known[right]
    return points[low] + (points[high] - points[low]) * (at - low) / (high - low)


@dataclass(frozen=True)
class ArmStages:
    """What admitting takes under one arm."""

    visual: int
    kept: int
    length: int
    """Positions of a prompt."""
    prompt_bytes: int
    """Keys and values of a prompt, all layers."""
    admissions: Mapping[int, Mapping[str, float]]
    """Requests admitted together -> stage -> milliseconds of all of them, each with an image of its own."""

    def ms(self, stage: str, count: int) -> float:
        if count == 0:
            return 0.0
        return max(0.0, line({b: stages[stage] for b, stages in self.admissions.items()}, count))


@dataclass(frozen=True)
class Moves:
    """What was measured of one engine, in one process, one move at a time."""

    arms: Mapping[str, ArmStages]
    steps: Mapping[int, Mapping[int, float]]
    """Slots -> tokens behind each -> milliseconds of a step."""
    token_bytes: int
    slots: int
    together: int
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

        The prefill's time is on the line through the measured lengths, all arms taken together.
        """
        if text in self.arms:
            return self.arms[text]
        method, _, budget = text.partition(":")
        same = [each for name, each in self.arms.items() if name.partition(":")[0] == method]
        try:
            keep = float(budget)
        except ValueError:
            keep = 0.0
        if not same or not 0 < keep <= 1:
            raise SightlineError(
                f"the card has no stages of {text}; it has {', '.join(self.arms)}, and other shares of the same methods"
            )
        kept = round(keep * same[0].visual)
        near = min(same, key=lambda each: abs(each.kept - kept))
        length = near.length - near.kept + kept
        admissions = {
            count: {**stages, "prefill": line({a.length: a.ms("prefill", count) for a in self.arms.values()}, length)}
            for count, stages in near.admissions.items()
        }
        return replace(
            near,
            kept=kept,
            length=length,
            prompt_bytes=near.prompt_bytes * length // near.length,
            admissions=admissions,
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Moves:
        """Back from JSON, whose keys are words."""
        arms = {
            name: ArmStages(**{**arm, "admissions": {int(b): each for b, each in arm["admissions"].items()}})
            for name, arm in values["arms"].items()
        }
        steps = {int(n): {int(length): ms for length, ms in each.items()} for n, each in values["steps"].items()}
        return Moves(**{**values, "arms": arms, "steps": steps})


def medians(every: Sequence[Moves]) -> Moves:
    """Of stages that were measured several times, number by number."""

    def middle(values: Sequence[Any]) -> Any:
        first = values[0]
        if isinstance(first, Mapping):
            return {key: middle([each[key] for each in values]) for key in first}
        return statistics.median(values) if isinstance(first, float) else first

    return Moves.from_dict(middle([each.as_dict() for each in every]))


def shared_vision(arms: Sequence[ArmStages]) -> Iterator[ArmStages]:
    """Arms whose images take the same way, each with the mean of what all of them took on it."""
    for arm in arms:
        same = {
            count: {stage: statistics.fmean(each.admissions[count][stage] for each in arms) for stage in PER_IMAGE}
            for count in arm.admissions
        }
        yield replace(arm, admissions={count: {**arm.admissions[count], **same[count]} for count in same})


def stages_on(results: Sequence[Mapping[str, Any]]) -> Moves:
    """Those of a card, of the process with the longest answers: its steps reach farthest."""
    longest = sorted(results, key=lambda result: int(result["request"].get("answer_tokens", 0)), reverse=True)
    for result in longest:
        for point in result["points"]:
            if "stages" in point["extra"]:
                return Moves.from_dict(point["extra"]["stages"])
    raise SightlineError("the card has no stages to plan from; measure with sightline bench load, no endpoint")


class Modelled(Continuous):
    """An engine that does nothing but let its clock run as long as the stages say."""

    def __init__(self, stages: Moves, arm: str, tokens: int, questions: int = 1) -> None:
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

    def admit(self, places: Sequence[int], new: Sequence[Visit]) -> list[int]:
        images = len(self.fresh(new))
        for stage in STAGES:
            self._pass(stage, self.arm.ms(stage, images if stage in PER_IMAGE else len(new)))
        return [self.arm.prompt_bytes] * len(new)

    def step(self, among: int) -> None:
        said = sum(request.tokens for request in self.seated.values()) / len(self.seated)
        self._pass("decode", self.stages.step_ms(among, self.arm.length + said - 1))


def predict(
    stages: Moves, arm: str, tokens: int, count: int, *, questions: int = 1, **load: Any
) -> tuple[float, dict[str, float]]:
    """Requests per second of so many under a load, described as ``drive`` takes it, and every stage's share of what the
    engine was busy with."""
    server = Modelled(stages, arm, tokens, questions)
    ended = drive(server, count, **load)
    busy = sum(server.spent.values())
    shares = {stage: ms / busy for stage, ms in server.spent.items()}
    return latencies(ended, load.get("clients", 0))["requests_per_s"], shares


def amdahl(stages: Moves, arm: str, spent: Mapping[str, float], clients: int) -> tuple[float, float]:
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


def full_arm(stages: Moves) -> str:
    found = next((name for name in stages.arms if is_full(name)), None)
    if found is None:
        raise SightlineError(
            "nothing was measured of the full prefix, which everything is compared with; add --arm full"
        )
    return found


def plan(stages: Moves, arm: str, tokens: int, clients: int, questions: int = 1) -> str:
    """What a budget saves at this load, in words."""
    count, load = clients + max(PLAYED, 8 * clients), {"clients": clients, "questions": questions}
    full, whole = predict(stages, full_arm(stages), tokens, count, **load)
    pruned, left = predict(stages, arm, tokens, count, **load)
    there = stages.arm(arm)
    itself = "" if arm in stages.arms else ", which was not measured itself,"
    shares = ", ".join(f"{stage} {left.get(stage, 0.0):.0%}" for stage in (*STAGES, "decode"))
    return (
        f"At {clients} clients and answers of {tokens} tokens {arm}{itself} keeps {there.kept} of {there.visual} "
        f"visual tokens and is predicted to answer {pruned:.3g} requests a second, the full prefix {full:.3g}: "
        f"{pruned / full:.2f}x. Of the engine's time that is left, {shares}. Prefill is {whole['prefill']:.0%} of the "
        f"full prefix's time, so that no budget gains more than {1 / (1 - whole['prefill']):.2f}x by it. From stages "
        f"measured on {stages.facts}; nothing else is known to be like it."
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
