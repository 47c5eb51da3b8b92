"""Repeated timings into a number with its spread, read and presented."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, Self

# Samples of a stage as one number with its bounds.


class Summary(Protocol):
    """What a card shows of samples: a centre with bounds, and what these are called."""

    centre_word: ClassVar[str]
    bounds_words: ClassVar[str]
    heading: ClassVar[str]
    """Above a table in which every cell is one of these."""

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self: ...

    @property
    def centre(self) -> float: ...

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...

    @property
    def count(self) -> int: ...

    @property
    def bounds(self) -> str: ...


@dataclass(frozen=True)
class Spread:
    """Median and percentiles of all samples of a stage, in the unit of the samples."""

    median: float
    low: float
    """10th percentile, nearest rank."""
    high: float
    """90th percentile, nearest rank."""
    count: int
    centre_word: ClassVar[str] = "median"
    bounds_words: ClassVar[str] = "10th to 90th percentile"
    heading: ClassVar[str] = "median milliseconds (10th..90th percentile) over all samples"

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        ordered = sorted(samples)
        last = len(ordered) - 1
        return cls(statistics.median(ordered), ordered[round(0.1 * last)], ordered[round(0.9 * last)], len(ordered))

    @property
    def centre(self) -> float:
        return self.median

    @property
    def bounds(self) -> str:
        return f"{self.low:.2f}..{self.high:.2f}"

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.bounds})"


@dataclass(frozen=True)
class MeanAndDeviation:
    """Mean and sample standard deviation over processes, each of which gave one number."""

    mean: float
    deviation: float | None
    """None of a single process, which has none."""
    count: int
    centre_word: ClassVar[str] = "mean"
    bounds_words: ClassVar[str] = "sample standard deviation over processes"
    heading: ClassVar[str] = "mean milliseconds ± sample standard deviation over processes"

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        deviation = statistics.stdev(samples) if len(samples) > 1 else None
        return cls(statistics.fmean(samples), deviation, len(samples))

    @property
    def centre(self) -> float:
        return self.mean

    @property
    def low(self) -> float:
        return self.mean - (self.deviation or 0.0)

    @property
    def high(self) -> float:
        return self.mean + (self.deviation or 0.0)

    @property
    def bounds(self) -> str:
        return f"{self.low:.2f}..{self.high:.2f}"

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + (f" ± {self.deviation:.2f}" if self.deviation is not None else "")


# How a benchmark wants to be shown, as data: columns of its tables and its chart. Cards and pages draw from it.

Unit = Literal["text", "count", "score", "number", "percent", "ratio"]


@dataclass(frozen=True)
class Quantity:
    """One column: where its values are in a card's records, what stands above them and how they are printed."""

    key: str
    """Also the heading on a card."""
    title: str = ""
    """The heading on a page."""
    unit: Unit = "text"
    interval: bool = False
    """Whether the page prints the 10th and 90th percentile with the value."""
    help: str = ""
    """One sentence for the page."""
    card: bool = True
    page: bool = True


@dataclass(frozen=True)
class FurtherTable:
    """A table beside the one that has a line per measured point: what follows from those lines."""

    name: str
    """Behind the name of the first table, as the stem of its files."""
    title: str
    caption: str
    columns: Sequence[Quantity]
    lines: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class StageBars:
    """A bar per line, made of its stages."""

    title: str
    whole: tuple[str, ...] = ()
    """Entries of the timer that are no stage on the way: the total, and what comes behind it."""


@dataclass(frozen=True)
class BatchCurves:
    """Curves over the batch size, one panel per quantity, for lines that were measured at several."""

    quantities: tuple[tuple[str, str], ...] = (("samples_per_s", "Samples/s"), ("speedup", "Speed-up"))
    """Keys of records and what stands beside the axis."""


Chart = StageBars | BatchCurves

KEPT = Quantity("kept_tokens", "K", "count", help="Visual tokens kept.")
SPREAD = Quantity("spread", page=False)
SPEEDUP = Quantity("speedup", "Speed-up", "ratio")
ESTIMATED = Quantity("estimated_gflop", "Est. GFLOP", "number", help="Estimated from shapes, not measured.", card=False)
OF_CEILING = Quantity(
    "of_ceiling", "Of ceiling", "percent", help="Estimated operations over measured time, over the ceiling."
)
PEAK = Quantity("allocated_peak_gib", unit="number", page=False)
MEMORY = Quantity("incremental_gib", "GiB", "number", help="Allocated peak above what the model holds at rest.")
SET_UP = Quantity("setup_s", "Set-up, s", "number", help="Compiling and capturing, outside every other time.")

OVER_BATCHES = (
    Quantity("batch", "Batch", "count"),
    replace(KEPT, card=False),
    Quantity("length", "Length", "count", help="Positions per sequence that the language layers read."),
    Quantity("ms", "ms", "number", interval=True, help="Per batch; median, 10th and 90th percentile."),
    SPREAD,
    Quantity("samples_per_s", "Samples/s", "number"),
    Quantity("tflops", unit="number", page=False),
    ESTIMATED,
    OF_CEILING,
    SPEEDUP,
    PEAK,
    MEMORY,
    Quantity("memory_saved", "Memory saved", "percent", help="Of the full prefix's GiB, under the same conditions."),
    SET_UP,
)
"""For whatever is measured per batch and against the full prefix; columns without values are left out of a page."""


# The sentence that the lines of a card allow: the fastest pruned arm, and whether that may be chance.

Line = dict[Any, Any]
"""A record of a card with its bounds (``ms_low``, ``ms_high``) and stages (``vision_ms``)."""
CONDITIONS = ("model", "device", "dtype", "positions", "box_source", "execution", "batching")
"""What must agree before two lines of a card may be compared or drawn in one panel."""


class Say(Protocol):
    """Prints a value as the page does everywhere."""

    def __call__(self, value: Any, kind: Unit, /) -> str: ...


def is_full(arm: str) -> bool:
    """Whether an arm is the full prefix, as a card's ratios understand it."""
    return arm.split(":")[0] == "full"


def fastest_arm(lines: Sequence[Line], say: Say, before_selection: Sequence[str]) -> str:
    """The fastest pruned arm, said together with whether its samples stand apart from those of the full prefix."""
    pruned = [line for line in lines if not is_full(line["arm"])]
    known = [line for line in pruned if line.get("speedup", math.nan) > 0]
    if not pruned:
        return ""
    if not known:
        return "No full prefix was timed under the conditions of a pruned one: there is no speed-up to report."
    best = max(known, key=lambda line: float(line["speedup"]))
    if best["speedup"] <= 1.0:
        return "No pruned arm was faster than the full prefix under the same conditions."
    shared = (*CONDITIONS, "batch")
    full = next(line for line in lines if is_full(line["arm"]) and all(line[key] == best[key] for key in shared))
    share = best["kept_tokens"] / best["visual_tokens"]
    return (
        f"At best, {best['arm']} ({best['execution']}, batch {best['batch']}) is "
        f"{say(best['speedup'], 'ratio')} as fast as the full prefix, with {share:.0%} of the visual tokens"
        + _certainty(full, best)
        + _saved_early(full, best, before_selection)
    )


def _certainty(full: Line, best: Line) -> str:
    """How a ratio of two medians ends: it means little where the samples do not stand apart."""
    if 1 in (full["samples"], best["samples"]):
        return "; a single sample, whose spread is not known."
    return "." if best["ms_high"] < full["ms_low"] else "; the two spreads overlap, so that this may be chance."


def _saved_early(full: Line, best: Line, before_selection: Sequence[str]) -> str:
    """Says so when much of what was saved was saved before anything was selected: most likely noise, or a cache."""
    saved = full["ms"] - best["ms"]
    early = sum(full.get(f"{stage}_ms", 0.0) - best.get(f"{stage}_ms", 0.0) for stage in before_selection)
    if not early > 0.1 * saved:
        return ""
    return f" Of the {saved:.2f} ms saved, {early:.2f} lie before selection ({', '.join(before_selection)})."
