"""Cost that tables print: measured once per study, kept as cost cards, with the study's own checkpoints and probes.

The files of Table 2, S17 and DILUTION name its functions as those of others name functions of ``measures``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sightline.core.table import format_value
from sightline.cost.benchmarks.base import BENCHMARKS
from sightline.cost.card import CostCard
from sightline.cost.measure import measure
from sightline.cost.published import DETECTOR_MS
from sightline.cost.request import ProbedRequest
from sightline.errors import SightlineError
from sightline_paper.claims import Judgement
from sightline_paper.lines import Line, Measured
from sightline_paper.models import INTERNVL, LLAVA, QWEN
from sightline_paper.needs import Need
from sightline_paper.probe_sets import CONFIRMATION
from sightline_paper.study import Study, built_set

PROCESSES, PROBES, DROPPED = 3, 100, 5
"""Fresh processes, probes of each, and those of them that are thrown away first."""
DEMO_PROCESSES = 2
BATCH = {QWEN: 32, LLAVA: 100, INTERNVL: 50}
SINGLE = {QWEN: "single-qwen", LLAVA: "s17-llava", INTERNVL: "single-internvl"}
"""Cards of single passes; Table 2 reads LLaVA's from that of Table S17."""
TIMED = ("full", "protected:0.4", "target:0.4", "anchorprune:0.4", "scope:0.4", "coin:0.4")
"""The arms of Table S17."""


def card_of(study: Study, name: str) -> CostCard:
    """A card that was measured in this study."""
    path = study.out / "cards" / f"{name}.json"
    if not path.is_file():
        raise SightlineError("its cost has not been measured")
    return CostCard.read(path)


def repeated_timing(study: Study, name: str, model: str, arms: Sequence[str]) -> None:
    """Real probes one at a time under all arms, in fresh processes, as the paper timed its methods."""
    few = study.options.demo
    request = _request(
        "repeated",
        probes_per_process=min(PROBES, 4 if few else PROBES, len(built_set(study, CONFIRMATION)[1])),
        drop=1 if few else DROPPED,
        **_material(study, model, arms),
    )
    numbers = range(DEMO_PROCESSES if few else PROCESSES)
    _measure(study, name, [request.model_copy(update={"repetition": number}) for number in numbers])


def batch_prefill(study: Study, name: str, model: str, arms: Sequence[str]) -> None:
    """A batch through the language model, full and pruned, with the memory it takes."""
    few = study.options.demo
    request = _request(
        "prefill", batch=2 if few else BATCH[model], repeats=2 if few else 5, warm_up=1, **_material(study, model, arms)
    )
    _measure(study, name, [request])


def first_token(study: Study, name: str, model: str, arms: Sequence[str], detector_ms: float) -> None:
    """The first token and decoding behind it, as the paper's answers of many tokens."""
    few = study.options.demo
    request = _request(
        "ttft",
        repeats=2 if few else 20,
        warm_up=1 if few else 5,
        decode=(1, 4) if few else (1, 32, 128),
        detector_ms=detector_ms,
        **_material(study, model, arms),
    )
    _measure(study, name, [request])


def _request(benchmark: str, **settings: Any) -> ProbedRequest:
    """What is asked of a benchmark that times probes, by its name."""
    found = BENCHMARKS.get(benchmark).request(kind=benchmark, **settings)
    assert isinstance(found, ProbedRequest)
    return found


def _material(study: Study, model: str, arms: Sequence[str]) -> dict[str, Any]:
    """What is timed, as its rows of the confirmation set were made: same images, image options and precision."""
    (need,) = study.servable([Need(model, CONFIRMATION, tuple(arms))])
    config = study.configuration(need)
    return {
        "arms": need.arms,
        "checkpoint": config.model,
        "probe_file": str(config.probes),
        "image_folder": str(config.images),
        "image_options": dict(config.image_options),
        "dtype": config.dtype,
        "device": config.device,
        "clip": config.clip or "",
    }


def _measure(study: Study, name: str, requests: Sequence[ProbedRequest]) -> None:
    """Writes the card after every process, so that what was measured is kept; a whole card is not measured again."""
    path = study.out / "cards" / f"{name}.json"
    done = list(CostCard.read(path).results) if path.is_file() else []
    for request in requests[len(done) :]:
        done.append(measure(request))
        path.parent.mkdir(parents=True, exist_ok=True)
        CostCard(done).write(path)


def line_of(card: CostCard, arm: str) -> dict[str, Any]:
    """An arm's record in a card, with its figures and its ratio to Full."""
    for record in card.records():
        if record["arm"] == arm:
            return record
    raise SightlineError(f"{arm} has not been timed")


# What the files of tables name.


def time_methods(study: Study, lines: Sequence[Line] = ()) -> None:
    """Single passes of LLaVA under the arms of Table S17."""
    if LLAVA in study.models:
        repeated_timing(study, SINGLE[LLAVA], LLAVA, TIMED)


def timed(study: Study, line: Line) -> list[Measured]:
    """Milliseconds of a pass by stages, and the speed-up over Full."""
    study.require(line.model)
    record = line_of(card_of(study, SINGLE[line.model]), line.arm)
    names = ("keep", "vision", "select", "language", "total", "speedup")
    return [Measured(record[name]) for name in names]


def selection_pays(study: Study, line: Line) -> Judgement:
    """Whether Target and AnchorPrune are faster than Full with their selection, and SCOPE and CoIn slower."""
    study.require(LLAVA)
    card = card_of(study, SINGLE[LLAVA])
    gains = {arm: float(line_of(card, arm)["speedup"]) for arm in TIMED if arm not in ("full", "protected:0.4")}
    words = ", ".join(f"{arm} {gain:.2f}×" for arm, gain in gains.items())
    held = min(gains["target:0.4"], gains["anchorprune:0.4"]) > 1 > max(gains["scope:0.4"], gains["coin:0.4"])
    return Judgement("holds" if held else "fails", words)


def time_passes_and_batches(study: Study, lines: Sequence[Line]) -> None:
    """Single passes and batches of every model that was given, each against its own Full."""
    for model in (QWEN, LLAVA, INTERNVL):
        arms = ("full", *(line.arm for line in lines if line.model == model))
        if model in study.models:
            batch_prefill(study, f"prefill-{model}", model, arms)
            if model == LLAVA:
                time_methods(study)
            else:
                repeated_timing(study, SINGLE[model], model, arms)


def speed_and_memory(study: Study, line: Line) -> list[Measured]:
    study.require(line.model)
    single = line_of(card_of(study, SINGLE[line.model]), line.arm)
    batched = line_of(card_of(study, f"prefill-{line.model}"), line.arm)
    saved = batched.get("memory_saved")
    memory = "no GPU" if saved is None else format_value(-float(saved), "percent")
    return [Measured(single["keep"]), Measured(single["speedup"]), Measured(batched["speedup"]), Measured(memory)]


def time_decoding(study: Study, lines: Sequence[Line]) -> None:
    for line in lines:
        if line.model in study.models:
            before = DETECTOR_MS if line.about["detector"] else 0.0
            first_token(study, f"decode-{line.model}", line.model, ("full", line.arm), before)


def diluted(study: Study, line: Line) -> list[Measured]:
    """Full's time over the arm's for the first token and 32 or 128 further ones."""
    study.require(line.model)
    for table in card_of(study, f"decode-{line.model}").further_tables():
        for record in table.lines:
            if record["arm"] == line.arm:
                return [Measured(float(record[f"n_{n}"])) for n in (32, 128)]
    raise SightlineError(f"{line.arm} has not been timed")
