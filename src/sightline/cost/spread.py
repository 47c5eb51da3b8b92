"""Samples of a stage as one number with its bounds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self


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
