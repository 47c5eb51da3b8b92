"""Falling back to the highest level where the lowest may lose too much, by a bound from a development set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from sightline.core.selection import Budget, Ranges
from sightline.errors import SightlineError
from sightline.policies.base import (
    POLICIES,
    FilePolicy,
    LevelAnswer,
    Noticed,
    Policy,
    Reads,
    TuningSample,
    check_fitted_levels,
    read_fitted,
)

TRIED = (0.01, 0.03, 0.05)
"""Losses that are tried on development samples."""
LEAST = 10
"""A bound rests on at least as many samples."""
NORMAL_95 = 1.96


@dataclass(frozen=True)
class LossBounds:
    """How much the lowest level may lose against the highest, by how sure its answer is."""

    confidences: tuple[float, ...]
    """Descending: how sure an answer must be for the bound at its place to hold."""
    bounds: tuple[float, ...]
    """Upper bound of the mean loss of all samples that are at least as sure, rising."""
    levels: str = ""

    def bound(self, confidence: float) -> float:
        """Of answers of this confidence or more; infinite for one that is less sure than all that were seen."""
        for known, bound in zip(self.confidences, self.bounds, strict=True):
            if confidence >= known:
                return bound
        return math.inf

    @staticmethod
    def measured(levels: Sequence[Budget], samples: Sequence[TuningSample]) -> LossBounds:
        """mean + 1.96 standard errors of the loss over the surest j samples, for every j from ``LEAST`` on."""
        low, high = levels[0], levels[-1]
        sure = np.array([sample.passes[low].confidence or 0.0 for sample in samples])
        lost = np.array([sample.scores[high] - sample.scores[low] for sample in samples])
        order = np.argsort(-sure, kind="stable")
        sure, lost = sure[order], lost[order]
        # Equally sure samples are accepted together: only the last of them bounds anything.
        ends = [j for j in range(LEAST, len(sure) + 1) if j == len(sure) or sure[j] < sure[j - 1]]
        raw = [float(lost[:j].mean() + NORMAL_95 * lost[:j].std(ddof=1) / math.sqrt(j)) for j in ends]
        rising = np.maximum.accumulate(raw).tolist() if raw else []
        # Midway to the next: rounding, which differs from batch to batch, moves nobody across.
        edges = [float(sure[j - 1] + sure[min(j, len(sure) - 1)]) / 2.0 for j in ends]
        least_sure = dict(zip(rising, edges, strict=True))
        return LossBounds(tuple(least_sure.values()), tuple(least_sure), "/".join(map(str, levels)))


@POLICIES.register("conformal")
@dataclass(frozen=True)
class Conformal(FilePolicy):
    """Answers at the lowest level, and at the highest where the bound on what that loses is above ``eps``.

    A cascade. ``file`` is what ``sightline policy fit`` wrote: for answers as sure as this one or surer, the mean loss
    of score against the highest level plus 1.96 standard errors, on a development set. It is a bound of the normal
    approximation, as in the paper's pilots, without a guarantee for finite samples.
    """

    eps: float = 0.03

    name: ClassVar[str] = "conformal"
    reads: ClassVar[frozenset[Reads]] = frozenset({"confidence"})
    tuned: ClassVar[tuple[str, ...]] = ("file", "eps")
    ranges: ClassVar[Ranges] = {"eps": (-1.0, 1.0)}

    def __post_init__(self) -> None:
        _ = self.losses  # a file that cannot be used is refused with its arm

    @cached_property
    def losses(self) -> LossBounds:
        found = read_fitted(self.file, self.name)
        try:
            confidences, bounds = (tuple(map(float, found[name])) for name in ("confidences", "bounds"))
            losses = LossBounds(confidences, bounds, str(found["levels"]))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise SightlineError(f"conformal: {self.file} holds no bounds ({error})") from None
        if len(losses.confidences) != len(losses.bounds):
            raise SightlineError(f"conformal: {self.file} holds bounds that are not whole; fit it again")
        return losses

    @classmethod
    def made_of(cls, losses: LossBounds, eps: float) -> Conformal:
        """Not from a file: one that was just measured."""
        policy = cls.untuned(file="", eps=eps)
        vars(policy)["losses"] = losses
        return policy

    def check_levels(self, levels: Sequence[Budget]) -> None:
        if len(levels) != 2:
            raise SightlineError(f"{self.name} falls back from one level to another: write two, for example 0.3/0.7")
        check_fitted_levels(self.losses.levels, levels, self.name)

    def decide(self, levels: Sequence[Budget], noticed: Noticed, passes: Sequence[LevelAnswer]) -> Budget | None:
        if not passes:
            return levels[0]
        falls_back = self.losses.bound(passes[0].confidence or 0.0) > self.eps
        return levels[-1] if falls_back and len(passes) == 1 else None

    def candidates(self, levels: Sequence[Budget], samples: Sequence[TuningSample]) -> Iterable[Policy]:
        losses = LossBounds.measured(levels, samples)
        return [self.made_of(losses, eps) for eps in TRIED]

    def contents(self) -> Mapping[str, Any]:
        return {"confidences": self.losses.confidences, "bounds": self.losses.bounds, "levels": self.losses.levels}

    def __str__(self) -> str:
        return f"{self.name}(eps={self.eps})"
