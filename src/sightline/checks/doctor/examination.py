"""What doctor found: checks that pass or fail, facts that do neither, and what a person should look at."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

import sightline
from sightline.geometry.cells import Cells


@dataclass(frozen=True)
class Check:
    passed: bool
    words: str
    measured: Mapping[str, Any] = field(default_factory=dict)
    """The figures in the words, as JSON can say them."""
    name: str = ""
    """What the check is called wherever machines read it."""


@dataclass(frozen=True)
class LitTokens:
    """What one word on the page changes."""

    page: Image.Image
    """With the word on it."""
    box: tuple[float, float, float, float]
    """Of the word, in fractions of the page."""
    change: np.ndarray
    """(N,) length of the difference between each token with and without the word."""


@dataclass(frozen=True)
class SeenPage:
    """The page as the model cuts it up."""

    page: Image.Image
    cells: Cells
    """(N, 4)"""
    layout: tuple[tuple[int, int], ...]
    lit: LitTokens | None
    """None where no word could be drawn."""


@dataclass(frozen=True)
class Examination(Sequence[Check]):
    """All checks in their order; ``facts`` by name, as JSON can say them."""

    checks: tuple[Check, ...]
    facts: Mapping[str, Any]
    seen: SeenPage | None = None

    def __getitem__(self, index: Any) -> Any:
        return self.checks[index]

    def __len__(self) -> int:
        return len(self.checks)

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    @property
    def failed(self) -> int:
        return sum(not check.passed for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file; docs/doctor.md names the keys."""
        return {
            "sightline": sightline.__version__,
            "passed": self.failed == 0,
            "checks": {
                check.name: {"passed": check.passed, "words": check.words, "measured": _finite(dict(check.measured))}
                for check in self.checks
            },
            **self.facts,
        }


def _finite(value: Any) -> Any:
    """None for a number that JSON has no word for, however deep it lies."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
