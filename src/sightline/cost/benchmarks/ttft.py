"""One image to the first token of the answer, everything included, stage by stage; then decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result
from sightline.cost.published import total_speedup_table
from sightline.cost.request import ProbedRequest, option, positive_numbers, with_default
from sightline.cost.spread import (
    ESTIMATED,
    KEPT,
    MEMORY,
    OF_CEILING,
    PEAK,
    SET_UP,
    SPEEDUP,
    SPREAD,
    FurtherTable,
    Line,
    Quantity,
    StageBars,
)
from sightline.errors import SightlineError

if TYPE_CHECKING:
    pass


def further_tokens(text: str) -> list[dict[str, Any]]:
    return [{"decode": tuple(positive_numbers(text, "--decode")) if text else ()}]


@dataclass(frozen=True)
class TtftRequest(ProbedRequest):
    repeats: int = with_default("repeats", 20)
    warm_up: int = with_default("warm_up", 5)
    decode: tuple[int, ...] = option(
        (), "Comma-separated numbers of further tokens; empty: none.", read=further_tokens, usual="1,32,128"
    )
    box_source: str = option("annotation", "Where boxes come from; a detector is a stage.")
    detector_ms: float = option(
        0.0,
        "A detector's milliseconds, measured elsewhere: added to total speed-ups of arms that read boxes.",
        minimum=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.detector_ms and self.box_source != "annotation":
            raise SightlineError(f"--box-source {self.box_source} is timed here: drop --detector-ms")


@BENCHMARKS.register("ttft")
class Ttft(Benchmark[TtftRequest]):
    name = "ttft"
    timing = "sightline.cost.timing.time_ttft:measure_ttft"
    title = "image to first token"
    description = "One image to the first token, everything included, stage by stage; then decoding."
    caption = (
        "Median milliseconds with the 10th and 90th percentile of all samples; stages as medians of their own, so that "
        "they need not add up to the total, which also holds what lies between them. Speed-up is of the total, against "
        "the full prefix under the same execution, kernels and dtype."
    )
    request = TtftRequest
    executions = ("stock", "eager", "compiled", "graph")
    usual_executions = ("stock", "eager", "graph")
    inside: ClassVar[Mapping[str, str]] = {
        "preprocess": "what the host does to the image in memory (no file decoding): on a CPU resizing, normalising "
        "and cutting into patches, on a GPU copying its bytes to pinned memory; in stock execution the checkpoint's "
        "image processor and the upload",
        "detector": "text detector on the image; present when the arm reads boxes and the box source detects them",
        "vision": "upload, on a GPU resizing, normalising and cutting into patches, vision tower, projector",
        "signals": "what the selector asked for beyond projected tokens",
        "select": "the selector, its scores included",
        "materialise": "the shortened prefix: gather or merge, positions; tokenised beforehand",
        "prefill": "all language layers",
        "first_token": "final norm, output head on the last position, arg-max, read back to the host",
        "total": "wall clock from the image in memory to the first token on the host: all of the above",
        "model": "stock execution: the model's own forward over the full prompt, its output head on the last position",
        "decode": "that many further tokens with a key-value cache, eager in every execution",
    }
    main = "total"
    counted = frozenset({"vision", "prefill"})
    before_selection = ("preprocess", "vision")
    chart = StageBars("Stages from image to first token", whole=("total", "decode"))

    def figures(self, point: dict[str, Any], result: Result) -> dict[str, Any]:
        given = result["request"].get("detector_ms")
        return {"given_detector_ms": given} if given and point["extra"].get("reads_boxes") else {}

    def further_tables(self, lines: Sequence[Line]) -> list[FurtherTable]:
        table = total_speedup_table(lines)
        return [table] if table else []

    def arms_under(self, execution: str, arms: tuple[str, ...]) -> tuple[str, ...]:
        """The model's own forward cannot prune."""
        return ("full",) if execution == "stock" else arms

    def columns(self, results: Sequence[Result]) -> list[Quantity]:
        timer: dict[str, str] = results[0]["inside_timer"]
        taken = dict.fromkeys(
            stage for result in results for point in result["points"] for stage in point["samples_ms"]
        )
        return [
            KEPT,
            Quantity("length", "Length", "count", help="Positions that the language layers read."),
            Quantity("ms", "Total, ms", "number", interval=True, help=timer.get("total", "")),
            SPREAD,
            SPEEDUP,
            Quantity("than_stock", "Than stock", "ratio"),
            *(_stage(name, covers) for name, covers in timer.items() if name not in self.chart.whole),
            *(_stage(name, "Further tokens, outside the total.") for name in taken if name.startswith("decode_")),
            ESTIMATED,
            replace(OF_CEILING, card=False),
            PEAK,
            MEMORY,
            SET_UP,
        ]


def _stage(name: str, covers: str) -> Quantity:
    title = name.replace("_", " ").capitalize()
    return Quantity(f"{name}_ms", title, "number", help=covers[:1].upper() + covers[1:], card=False)
