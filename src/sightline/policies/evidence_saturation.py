"""The level from which on more tokens find no more: by what the selector keeps at each, before any answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sightline.core.selection import Budget, Ranges
from sightline.policies.base import (
    POLICIES,
    LevelAnswer,
    Noticed,
    Objective,
    Policy,
    Reads,
    Sight,
    TuningSample,
    blocks_of,
    dispersion,
)

MASSES = tuple(round(0.50 + 0.02 * step, 2) for step in range(21))
SHARES = (0.5, 0.625, 0.75, 0.875, 1.0)
"""Thresholds that are tried on development samples."""


@POLICIES.register("evidence_saturation")
@dataclass(frozen=True)
class EvidenceSaturation(Policy):
    """The lowest level whose tokens hold enough of the relevance, in enough of the places that have any.

    Before any answer. Scores become weights, softmax(score / temperature); the image is cut into side x side blocks,
    active where their tokens weigh at least ``active`` together. A level passes when its tokens hold ``mass`` of the
    weight and stand in a share ``cells`` of the active blocks; where none passes, the highest level is taken.
    """

    mass: float = 0.72
    cells: float = 0.75
    temperature: float = 0.12
    side: int = 4
    active: float = 0.02

    name: ClassVar[str] = "evidence_saturation"
    reads: ClassVar[frozenset[Reads]] = frozenset({"masks", "scores"})
    ranges: ClassVar[Ranges] = {
        "mass": (0.0, 1.0),
        "cells": (0.0, 1.0),
        "temperature": (1e-6, 1e6),
        "side": (1, 64),
        "active": (0.0, 1.0),
    }
    tuned: ClassVar[tuple[str, ...]] = ("mass", "cells")
    objective: ClassVar[Objective] = "least_keep"

    def look(self, sight: Sight) -> Noticed:
        """Per level the weight and the share of active blocks that are kept; entropy and dispersion of the weights."""
        assert sight.scores is not None  # the policy reads scores
        scores = sight.scores / self.temperature
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        blocks = blocks_of(sight.cells, self.side)
        heavy = np.bincount(blocks, weights, minlength=self.side**2) >= self.active
        return {
            "mass": [float(weights[mask].sum()) for mask in sight.masks],
            "cells": [_share_reached(heavy, blocks[mask]) for mask in sight.masks],
            "entropy": _entropy(weights),
            "dispersion": dispersion(sight.cells, weights),
        }

    def decide(self, levels: Sequence[Budget], noticed: Noticed, passes: Sequence[LevelAnswer]) -> Budget | None:
        if passes:
            return None
        for level, mass, cells in zip(levels, noticed["mass"], noticed["cells"], strict=True):
            if mass >= self.mass and cells >= self.cells:
                return level
        return levels[-1]

    def candidates(self, levels: Sequence[Budget], samples: Sequence[TuningSample]) -> Iterable[Policy]:
        return (replace(self, mass=mass, cells=cells) for mass, cells in product(MASSES, SHARES))


def _share_reached(heavy: NDArray[np.bool_], kept: NDArray[np.int64]) -> float:
    """Of the heavy blocks the share that a kept token stands in; 1 where none is heavy."""
    reached = np.zeros_like(heavy)
    reached[kept] = True
    return float(reached[heavy].mean()) if heavy.any() else 1.0


def _entropy(weights: NDArray[np.float64]) -> float:
    """0 where one token has all the weight, 1 where all have the same."""
    if len(weights) < 2:
        return 0.0
    positive = weights[weights > 0]
    return float(-(positive * np.log(positive)).sum() / np.log(len(weights)))
