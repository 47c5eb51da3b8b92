"""The audit sweep against the one-sample procedure: images x probes x arms, both timed in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result
from sightline.cost.request import Request, option
from sightline.cost.spread import ESTIMATED, OF_CEILING, SET_UP, Line, Quantity, Say

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class SweepRequest(Request):
    repeats: int = 1
    """The whole sweep is timed once."""
    profile: bool = False
    images: int = option(100, "Images of the sweep.", minimum=1)
    probes: int = option(2, "Probes per image.", minimum=1)
    batch_tokens: int = option(32768, "Tokens per language batch.", minimum=1)
    batch_images: int = option(16, "Images per vision batch.", minimum=1)
    shard_images: int = option(64, "Images scored together, arm by arm.", minimum=1)
    one_sample_rows: int = option(24, "Rows the one-sample procedure is timed on.", minimum=1)
    """Its rate does not depend on how many."""


@BENCHMARKS.register("sweep")
class Sweep(Benchmark[SweepRequest]):
    name = "sweep"
    timing = "sightline.cost.timing.time_sweep:measure_sweep"
    title = "audit sweep against one sample at a time"
    description = "A whole audit sweep through the engine, against one sample at a time; both timed in one process."
    caption = "Rows per second of the whole sweep through the engine, and of one sample at a time, in one process."
    request = SweepRequest
    arms = (
        "full:1.0",
        "target:0.1",
        "target:0.2",
        "target:0.3",
        "target:0.4",
        "target:0.5",
        "grid:0.2",
        "grid:0.3",
        "grid:0.4",
        "random:0.2",
        "random:0.3",
        "random:0.4",
    )
    usual_executions = ("compiled",)
    together = True
    planless = True
    inside: ClassVar[Mapping[str, str]] = {
        "engine": "whole sweep: preprocessing (overlapped on the host), vision once per image, selection, "
        "materialising, scoring both continuations in batches; start-up (imports, weights, compiling, one warm-up "
        "shard) excluded",
        "one_sample": "per row, for each continuation by itself: the checkpoint's image processor, the model's own "
        "eager vision tower, selection, materialising, the model's own eager forward of prompt and that answer as one "
        "sequence with the output head on every position, its loss read back; all arms warmed up",
        "one_sample_preprocess": "what of it the image processor and the upload took",
    }
    main = "engine"

    def batch_words(self, results: Sequence[Result]) -> str:
        """A sweep batches by tokens: what bounds its batches."""
        request = results[0]["request"]
        return (
            f"{request['images']} images with {request['probes']} probes each; up to {request['batch_images']} images "
            f"and {request['batch_tokens']} tokens at a time"
        )

    def figures(self, point: dict[str, Any], result: Result) -> dict[str, Any]:
        extra = point["extra"]
        rates = ("one_sample_rows_per_s", "throughput_ratio", "ratio_to_model_alone")
        known = {name: extra[name] for name in rates if name in extra}
        return {"rows": extra["rows"], "rows_per_s": extra["engine_rows_per_s"], **known}

    def columns(self, results: Sequence[Result]) -> list[Quantity]:
        return [
            Quantity("rows", "Rows", "count"),
            Quantity("ms", "Sweep, ms", "number", help="The whole sweep once."),
            Quantity("rows_per_s", "Rows/s, engine", "number"),
            Quantity("one_sample_rows_per_s", "Rows/s, one sample", "number"),
            Quantity(
                "throughput_ratio", "Ratio", "ratio", help="Engine over one sample at a time, both from the image on."
            ),
            Quantity(
                "ratio_to_model_alone",
                "Ratio to model alone",
                "ratio",
                help="Engine, preprocessing included, over one sample at a time without its image processor.",
            ),
            ESTIMATED,
            OF_CEILING,
            SET_UP,
        ]

    def reading(self, lines: Sequence[Line], say: Say) -> str:
        best = max(lines, key=lambda line: float(line["throughput_ratio"]))
        ratio = best.get("ratio_to_model_alone")
        known = ratio is not None and ratio == ratio  # a card of several lines may have it for some
        alone = f", or {say(ratio, 'ratio')} without the latter's image processor" if known else ""
        return (
            f"The engine ({best['execution']}) makes {say(best['rows_per_s'], 'number')} rows per second, one sample "
            f"at a time makes {say(best['one_sample_rows_per_s'], 'number')}: "
            f"{say(best['throughput_ratio'], 'ratio')}{alone}."
        )
