"""``policy:long_question:target:0.3/0.7``: does a longer question need more of the image?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sightline.core.selection import Budget, Ranges
from sightline.policies import LevelAnswer, Noticed, Policy, Sight


@dataclass(frozen=True)
class LongQuestion(Policy):
    """The highest level for questions of more than so many words, the lowest for all others."""

    words: int = 12

    name: ClassVar[str] = "long_question"
    ranges: ClassVar[Ranges] = {"words": (0, 1000)}

    def look(self, sight: Sight) -> Noticed:
        return {"words": len(sight.question.split())}

    def decide(self, levels: Sequence[Budget], noticed: Noticed, passes: Sequence[LevelAnswer]) -> Budget | None:
        if passes:
            return None
        return levels[-1] if noticed["words"] > self.words else levels[0]
