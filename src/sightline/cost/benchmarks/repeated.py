"""The paper's repeated timing: real probes one at a time, all arms in turn, in several fresh processes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result
from sightline.cost.card import model_name
from sightline.cost.published import EFFICIENCY, REPEATED, published_key
from sightline.cost.request import ProbedRequest, option, positive_numbers, with_default
from sightline.cost.spread import SPEEDUP, MeanAndDeviation, Quantity, StageBars
from sightline.errors import SightlineError

if TYPE_CHECKING:
    pass

STAGES = {"vision": "Vision", "select": "Select/materialise", "language": "Language", "total": "Total"}


def repetitions(text: str) -> list[dict[str, Any]]:
    """``3``: a request per process, each of which knows its number."""
    counts = positive_numbers(text, "--processes")
    if len(counts) > 1:
        raise SightlineError(f"--processes {text}: give one number")
    return [{"repetition": number} for number in range(counts[0])]


@dataclass(frozen=True)
class RepeatedRequest(ProbedRequest):
    probe_file: str = option("", "Needed: probe file, whose first probes are timed.", flag="--probes")
    image_folder: str = option("", "Needed: folder of the probes' images.", flag="--images")
    repetition: int = option(
        0, "Fresh processes; each times all arms, begun with another.", flag="--processes", read=repetitions, usual="3"
    )
    """Number of this process."""
    probes_per_process: int = option(100, "The file's first probes, the same in every process.", minimum=1)
    drop: int = option(5, "Of them the first ones under each arm, thrown away as warm-up.", minimum=0)
    attention: str = with_default("attention", "eager")
    """As in the paper."""
    image_size: tuple[int, int] | None = None
    text_tokens: int = 0
    repeats: int = 1
    """Every probe is timed once per arm and process."""
    warm_up: int = 0
    profile: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.probe_file:
            raise SightlineError("repeated timing is of real probes: give --probes FILE and --images DIR")
        if self.drop >= self.probes_per_process:
            raise SightlineError(f"--drop {self.drop} leaves none of {self.probes_per_process} probes")

    @property
    def most_probes(self) -> int:
        return self.probes_per_process

    @property
    def least_probes(self) -> int:
        return self.probes_per_process


@BENCHMARKS.register("repeated")
class Repeated(Benchmark[RepeatedRequest]):
    name = "repeated"
    timing = "sightline.cost.timing.time_repeated:measure_repeated"
    title = "scoring passes over real probes, repeated in fresh processes"
    description = "The paper's repeated timing: real probes one at a time, all arms, in several fresh processes."
    caption = (
        "Milliseconds of one teacher-forced scoring pass over one probe: mean and sample standard deviation over fresh "
        "processes, each of which contributes the mean over its probes. Every process times all arms over the same "
        "probes and begins with another arm; the first probes under each arm are dropped. A probe's time is the mean "
        "over the passes with yes and with no, each of which encodes and selects anew. Preparing the image on the host "
        "is not in it. Speed-up is of the mean totals. Published values are from an A800; AnchorPrune's there is the "
        "mean of a selection and a cache hit."
    )
    request = RepeatedRequest
    arms = ("full", "target:0.4")
    executions = ("eager",)
    together = True
    planless = True
    models_own = True
    inside: ClassVar[Mapping[str, str]] = {
        "vision": "upload, on a GPU resizing, normalising and cutting into patches; vision tower, projector; what "
        "signals read is kept",
        "select": "signals, the selector with its scores, and the shortened prefix of prompt and one answer; tokenised "
        "beforehand",
        "language": "the model's own language model over prompt and answer, output head on every position, loss read "
        "back; methods that cut between layers go through Sightline's loop, and their choice counts as select",
        "total": "wall clock of the pass: all of the above and what lies between; the device is waited for after every "
        "stage",
    }
    main = "total"
    before_selection = ("vision",)
    chart = StageBars("Stages of a scoring pass", whole=("total",))
    summary = MeanAndDeviation

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

    def columns(self, results: Sequence[Result]) -> list[Quantity]:
        known = any(_published(arm, result) for result in results for arm in result["request"]["arms"])
        published = [
            Quantity("published_ms", "Published total, ms", "number", help="On an A800."),
            Quantity("published_speedup", "Published speed-up", "ratio", help="On an A800."),
        ]
        return [
            Quantity("keep", "Keep", "score", help="Share of the visual tokens, mean over probes."),
            *(Quantity(stage, f"{title} ms", help=_sentence(self.inside[stage])) for stage, title in STAGES.items()),
            SPEEDUP,
            *(published if known else ()),
        ]


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


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
