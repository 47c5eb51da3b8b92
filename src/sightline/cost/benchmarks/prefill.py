"""The language layers over a batch of prefixes: time, throughput, memory, up to the largest batch that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result
from sightline.cost.card import model_name
from sightline.cost.published import EFFICIENCY, PREFILL_BATCH, published_key
from sightline.cost.request import ProbedRequest, option, positive_numbers, words_of
from sightline.cost.spread import OVER_BATCHES, BatchCurves, Quantity

if TYPE_CHECKING:
    pass


def batch_sizes(text: str) -> list[dict[str, Any]]:
    """``1,32,max``: a request per size, and one whose batch grows."""
    words = words_of(text)
    numbers = ",".join(word for word in words if word != "max")
    fixed: list[dict[str, Any]] = []
    if numbers or "max" not in words:
        fixed = [{"batch": size} for size in positive_numbers(numbers, "--batch")]
    return fixed + ([{"batch": 1, "grow": True}] if "max" in words else [])


@dataclass(frozen=True)
class PrefillRequest(ProbedRequest):
    batch: int = option(
        1,
        "Comma-separated batch sizes; max doubles until memory runs out.",
        read=batch_sizes,
        usual="1,32",
        minimum=1,
    )
    grow: bool = False
    """Doubles the batch from ``batch`` until memory runs out."""
    largest: int = option(4096, "Where --batch max stops in any case.", minimum=1)

    @property
    def most_probes(self) -> int:
        return self.batch


@BENCHMARKS.register("prefill")
class Prefill(Benchmark[PrefillRequest]):
    name = "prefill"
    timing = "sightline.cost.timing.time_prefill:measure_prefill"
    title = "language layers over a batch of prefixes"
    description = "Time and memory of the language layers over a batch of prefixes, full and pruned."
    caption = (
        "Median milliseconds per batch with the 10th and 90th percentile of all samples. Speed-up and memory saved are "
        "against the full prefix under the same execution, kernels, dtype and batch size; where that was not measured "
        "there is no ratio. Memory is counted on a GPU only."
    )
    request = PrefillRequest
    arms = ("full", "target:0.3", "target:0.2")
    usual_executions = ("eager", "compiled")
    inside: ClassVar[Mapping[str, str]] = {
        "collate": "padding the prefixes into one batch",
        "prefill": "all language layers over the collated batch; no vision, no selection, no output head",
    }
    main = "prefill"
    chart = BatchCurves()

    def figures(self, point: dict[str, Any], result: Result) -> dict[str, Any]:
        """What the paper has for this model, arm and batch."""
        key = published_key(model_name(result["request"]), point["arm"])
        if key is None or key not in EFFICIENCY or point["batch"] != PREFILL_BATCH[key[0]]:
            return {}
        return {"published_speedup": EFFICIENCY[key].prefill, "published_saved": EFFICIENCY[key].memory_saved}

    def columns(self, results: Sequence[Result]) -> list[Quantity]:
        published = [
            Quantity("published_speedup", "Published speed-up", "ratio", help="On an A800."),
            Quantity("published_saved", "Published memory saved", "percent", help="On an A800."),
        ]
        known = any(self.figures(point, result) for result in results for point in result["points"])
        return [*OVER_BATCHES, *(published if known else ())]

    def batching(self, request: dict[str, Any]) -> str:
        return "growing" if request["grow"] else "fixed"

    def batch_words(self, results: Sequence[Result]) -> str:
        fixed, growing = (
            super(Prefill, self).batch_words([each for each in results if self.batching(each["request"]) == batching])
            for batching in ("fixed", "growing")
        )
        return "; ".join(filter(None, (fixed, growing and f"growing in one process: {growing}")))
