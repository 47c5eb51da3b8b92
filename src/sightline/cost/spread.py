"""Median and spread of samples."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Median and percentiles of all samples of a stage, in the unit of the samples."""

    median: float
    low: float
    """10th percentile, nearest rank."""
    high: float
    """90th percentile, nearest rank."""
    count: int

    @staticmethod
    def of(samples: Sequence[float]) -> Spread:
        ordered = sorted(samples)
        last = len(ordered) - 1
        return Spread(statistics.median(ordered), ordered[round(0.1 * last)], ordered[round(0.9 * last)], len(ordered))

    @property
    def bounds(self) -> str:
        return f"{self.low:.2f}..{self.high:.2f}"

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.bounds})"
