"""Policies that go up level by level until an answer is good enough: stable, or sure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from string import punctuation
from typing import ClassVar

from sightline.core.selection import Budget, Ranges
from sightline.errors import SightlineError
from sightline.policies.base import POLICIES, LevelAnswer, Noticed, Policy, Reads, TuningSample, cuts


@POLICIES.register("answer_stability")
@dataclass(frozen=True)
class AnswerStability(Policy):
    """Goes up level by level until the last ``agree`` answers are the same.

    A cascade. Case, spaces and punctuation at the ends make no difference. The last answer counts, and every one of
    them is paid for.
    """

    agree: int = 2

    name: ClassVar[str] = "answer_stability"
    tuned: ClassVar[tuple[str, ...]] = ("agree",)
    ranges: ClassVar[Ranges] = {"agree": (2, 16)}

    def check_levels(self, levels: Sequence[Budget]) -> None:
        if self.agree >= len(levels):
            raise SightlineError(
                f"{self.name} with {self.agree} answers that agree runs all of {len(levels)} levels whatever they say; "
                "name more levels"
            )

    def decide(self, levels: Sequence[Budget], noticed: Noticed, passes: Sequence[LevelAnswer]) -> Budget | None:
        stable = len(passes) >= self.agree and len({_plain(one.answer) for one in passes[-self.agree :]}) == 1
        return None if stable or len(passes) == len(levels) else levels[len(passes)]

    def candidates(self, levels: Sequence[Budget], samples: Sequence[TuningSample]) -> Iterable[Policy]:
        return [type(self)(agree) for agree in range(2, len(levels))]


def _plain(answer: str) -> str:
    return " ".join(answer.casefold().split()).strip(punctuation + " ")


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
