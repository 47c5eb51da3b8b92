"""Cost cards of all three kinds, measured here and now on tiny shapes: times are real, and mean nothing."""

from pathlib import Path
from typing import Any

from sightline.cost.benchmarks.base import BENCHMARKS
from sightline.cost.card import CostCard
from sightline.cost.measuring_process import measure_here

HERE: dict[str, Any] = {"device": "cpu", "dtype": "float32", "config": "tiny-llava", "repeats": 3, "warm_up": 1}
ARMS = ("full", "target:0.2")


def make_cards(folder: Path) -> dict[str, Path]:
    """prefill at two batch sizes, ttft and sweep; the first two eager and through a graph's buffers."""
    requests: dict[Any, list[dict[str, Any]]] = {
        "prefill": [{"batch": 1}, {"batch": 2}],
        "ttft": [{"decode": (1, 2)}],
        "sweep": [{"images": 2, "batch_images": 2, "one_sample_rows": 2}],
    }
    cards = {}
    for kind, variants in requests.items():
        asked = [
            BENCHMARKS.get(kind).request(kind, arms=ARMS, execution=execution, **variant, **HERE)
            for execution in (("eager",) if kind == "sweep" else ("eager", "graph"))
            for variant in variants
        ]
        cards[kind] = folder / f"{kind}.json"
        CostCard([measure_here(request) for request in asked]).write(cards[kind])
    return cards
