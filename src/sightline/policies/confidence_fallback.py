from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sightline.core.selection import Budget, Ranges
from sightline.policies.base import POLICIES, LevelAnswer, Noticed, Policy, Reads, TuningSample, cuts

TRIED = 40
"""Thresholds that are tried on development samples, between their confidences."""


@POLICIES.register("confidence_fallback")
@dataclass(frozen=True)
class ConfidenceFallback(Policy):
    """Answers at the lowest level, and one level up for as long as the answer is not sure enough.

    A cascade. Sure enough is a confidence of at least ``threshold``: |margin| in nats for yes or no, for a text the
    probability per token, exp(-answer_loss).
    """

    threshold: float

    name: ClassVar[str] = "confidence_fallback"
    reads: ClassVar[frozenset[Reads]] = frozenset({"confidence"})
    tuned: ClassVar[tuple[str, ...]] = ("threshold",)
    ranges: ClassVar[Ranges] = {"threshold": (0.0, float("inf"))}

    def decide(self, levels: Sequence[Budget], noticed: Noticed, passes: Sequence[LevelAnswer]) -> Budget | None:
        if not passes:
            return levels[0]
        sure = (passes[-1].confidence or 0.0) >= self.threshold
        return None if sure or len(passes) == len(levels) else levels[len(passes)]

    def candidates(self, levels: Sequence[Budget], samples: Sequence[TuningSample]) -> Iterable[Policy]:
        """From never falling back to nearly always."""
        seen = [sample.passes[levels[0]].confidence or 0.0 for sample in samples]
        return [type(self)(threshold) for threshold in [0.0, *cuts(seen, TRIED)]]
