"""Cost that tables print: measured once per study, kept as cost cards, with the study's own checkpoints and probes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sightline.cost.benchmarks.prefill import PrefillRequest
from sightline.cost.benchmarks.repeated import RepeatedRequest
from sightline.cost.benchmarks.ttft import TtftRequest
from sightline.cost.card import CostCard
from sightline.cost.measure import measure
from sightline.errors import SightlineError
from sightline.paper.needs import Need
from sightline.paper.probe_sets import CONFIRMATION, built_set

if TYPE_CHECKING:
    from sightline.cost.request import ProbedRequest
    from sightline.paper.study import Study

PROCESSES, PROBES, DROPPED = 3, 100, 5
"""Fresh processes, probes of each, and those of them that are thrown away first."""
DEMO_PROCESSES = 2
BATCH = {"qwen": 32, "llava": 100, "internvl": 50}


def card_of(study: Study, name: str) -> CostCard:
    """A card that was measured in this study."""
    path = study.out / "cards" / f"{name}.json"
    if not path.is_file():
        raise SightlineError("its cost has not been measured")
    return CostCard.read(path)


def repeated_timing(study: Study, name: str, model: str, arms: Sequence[str]) -> None:
    """Real probes one at a time under all arms, in fresh processes, as the paper timed its methods."""
    few = study.options.demo
    request = RepeatedRequest(
        "repeated",
        probes_per_process=min(PROBES, _probe_count(study)),
        drop=1 if few else DROPPED,
        **_material(study, model, arms),
    )
    _measure(
        study,
        name,
        [request.model_copy(update={"repetition": number}) for number in range(DEMO_PROCESSES if few else PROCESSES)],
    )


def batch_prefill(study: Study, name: str, model: str, arms: Sequence[str]) -> None:
    """A batch through the language model, full and pruned, with the memory it takes."""
    few = study.options.demo
    request = PrefillRequest(
        "prefill",
        batch=2 if few else BATCH[model],
        repeats=2 if few else 5,
        warm_up=1,
        **_material(study, model, arms),
    )
    _measure(study, name, [request])


def first_token(study: Study, name: str, model: str, arms: Sequence[str], detector_ms: float) -> None:
    """The first token and decoding behind it, as the paper's answers of many tokens."""
    few = study.options.demo
    request = TtftRequest(
        "ttft",
        repeats=2 if few else 20,
        warm_up=1 if few else 5,
        decode=(1, 4) if few else (1, 32, 128),
        detector_ms=detector_ms,
        **_material(study, model, arms),
    )
    _measure(study, name, [request])


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


def _probe_count(study: Study) -> int:
    found = len(built_set(study, CONFIRMATION)[1])
    return min(found, 4) if study.options.demo else found


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
