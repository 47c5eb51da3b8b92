"""The language layers over a batch of prefixes: time, throughput, memory, up to the largest batch that fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result
from sightline.cost.measurement import Measurement
from sightline.cost.presentation import BatchCurves
from sightline.cost.request import Request, option, positive_numbers, words_of

if TYPE_CHECKING:
    from sightline.cost.subject import Subject


def batch_sizes(text: str) -> list[dict[str, Any]]:
    """``1,32,max``: a request per size, and one whose batch grows."""
    words = words_of(text)
    numbers = ",".join(word for word in words if word != "max")
    fixed: list[dict[str, Any]] = []
    if numbers or "max" not in words:
        fixed = [{"batch": size} for size in positive_numbers(numbers, "--batch")]
    return fixed + ([{"batch": 1, "grow": True}] if "max" in words else [])


@dataclass(frozen=True)
class PrefillRequest(Request):
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


@BENCHMARKS.register("prefill")
class Prefill(Benchmark[PrefillRequest]):
    name = "prefill"
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

    def measure(self, request: PrefillRequest, subject: Subject) -> Iterator[Measurement]:
        from sightline.cost.timing.time_prefill import measure_prefill

        return measure_prefill(request, subject)

    def batching(self, request: dict[str, Any]) -> str:
        return "growing" if request["grow"] else "fixed"

    def batch_words(self, results: Sequence[Result]) -> str:
        fixed, growing = (
            super(Prefill, self).batch_words([each for each in results if self.batching(each["request"]) == batching])
            for batching in ("fixed", "growing")
        )
        return "; ".join(filter(None, (fixed, growing and f"growing in one process: {growing}")))
