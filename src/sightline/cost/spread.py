"""Repeated timings into a number with its spread, read and presented."""

from __future__ import annotations

import math
import statistics
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self

# Samples of a stage as one number with its bounds.


@dataclass(frozen=True)
class Summary(ABC):
    """What a card shows of samples: a centre with bounds, in their unit, and what these are called."""

    centre: float
    low: float
    high: float
    count: int
    centre_word: ClassVar[str]
    bounds_words: ClassVar[str]
    heading: ClassVar[str]
    """Above a table in which every cell is one of these."""

    @classmethod
    @abstractmethod
    def of(cls, samples: Sequence[float]) -> Self: ...

    @property
    def bounds(self) -> str:
        return f"{self.low:.2f}..{self.high:.2f}"


@dataclass(frozen=True)
class Spread(Summary):
    """Median, and the 10th and 90th percentile by nearest rank, of all samples of a stage."""

    centre_word: ClassVar[str] = "median"
    bounds_words: ClassVar[str] = "10th to 90th percentile"
    heading: ClassVar[str] = "median milliseconds (10th..90th percentile) over all samples"

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        ordered = sorted(samples)
        last = len(ordered) - 1
        return cls(statistics.median(ordered), ordered[round(0.1 * last)], ordered[round(0.9 * last)], len(ordered))

    def __str__(self) -> str:
        return f"{self.centre:.2f}" + (f" ({self.bounds})" if self.count > 1 else "")


@dataclass(frozen=True)
class MeanAndDeviation(Summary):
    """Mean and sample standard deviation over processes, each of which gave one number."""

    deviation: float | None = None
    """None of a single process, which has none."""
    centre_word: ClassVar[str] = "mean"
    bounds_words: ClassVar[str] = "sample standard deviation over processes"
    heading: ClassVar[str] = "mean milliseconds ± sample standard deviation over processes"

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        mean, deviation = statistics.fmean(samples), statistics.stdev(samples) if len(samples) > 1 else None
        return cls(mean, mean - (deviation or 0.0), mean + (deviation or 0.0), len(samples), deviation)

    def __str__(self) -> str:
        return f"{self.centre:.2f}" + (f" ± {self.deviation:.2f}" if self.deviation is not None else "")


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
    optional: bool = False
    """Whether a card leaves it out where no line has it, as a page does with every column."""


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
    most: bool = False
    """Whether the largest batch alone is drawn."""


@dataclass(frozen=True)
class BatchCurves:
    """Curves over the batch size, one panel per quantity, for lines that were measured at several."""

    quantities: tuple[tuple[str, str], ...] = (("samples_per_s", "Samples/s"), ("speedup", "Speed-up"))
    """Keys of records and what stands beside the axis."""
    over: str = "batch size"
    """What a batch is here."""


Chart = StageBars | BatchCurves

_DECLARED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
Declared = Sequence[str | Mapping[str, Any]]
"""Columns as a TOML file lists them: by the key of one that several benchmarks have, or field by field."""
OVER_BATCHES: Declared = _DECLARED["over_batches"]
"""For whatever is measured per batch and against the full prefix; columns without values are left out of a page."""


def quantities(declared: Declared) -> list[Quantity]:
    fields = [{"key": each} if isinstance(each, str) else each for each in declared]
    return [Quantity(**{**_DECLARED["shared"].get(each["key"], {}), **each}) for each in fields]


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
