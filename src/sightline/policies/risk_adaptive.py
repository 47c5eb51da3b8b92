""""""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.policies.base import POLICIES, LevelAnswer, Noticed, Policy, Sight
from sightline.policies.risk_file import UNKNOWN, content_digest, ranked_risks


@POLICIES.register("risk_adaptive")
@dataclass(frozen=True)
class RiskAdaptive(Policy):
    """A kept fraction between two levels, in proportion to the rank of a sample's risk in a file.

    Before any answer: low + risk * (high - low). ``file`` is a CSV with columns ``probe_id`` and ``risk``; a sample
    that it does not name is in the middle. Nearly every sample has a budget, and so a batch, of its own.
    """

    file: str

    name: ClassVar[str] = "risk_adaptive"

    def __post_init__(self) -> None:
        ranked_risks(self.file, self.name)  # a file that cannot be used is refused with its arm

    def check_levels(self, levels: Sequence[Budget]) -> None:
        if len(levels) != 2 or any(level.keep is None for level in levels):
            raise SightlineError(f"{self.name} goes from one kept fraction to another: write two, for example 0.15/0.7")

    def digest(self) -> str:
        return content_digest(self.file, self.name)

    def look(self, sight: Sight) -> Noticed:
        return {"risk": ranked_risks(self.file, self.name).get(sight.probe_id, UNKNOWN)}

    def decide(self, levels: Sequence[Budget], noticed: Noticed, passes: Sequence[LevelAnswer]) -> Budget | None:
        if passes:
            return None
        low, high = (level.keep or 0.0 for level in levels)
        return Budget.ratio(low + noticed["risk"] * (high - low))


@POLICIES.register("risk_bucket")
@dataclass(frozen=True)
class RiskBucket(Policy):
    """A level by the rank of a sample's risk in a file: of three levels one for each third.

    Before any answer. ``file`` is a CSV with columns ``probe_id`` and ``risk``; a sample that it does not name is in
    the middle.
    """

    file: str

    name: ClassVar[str] = "risk_bucket"

    def __post_init__(self) -> None:
        ranked_risks(self.file, self.name)  # a file that cannot be used is refused with its arm

    def digest(self) -> str:
        return content_digest(self.file, self.name)

    def look(self, sight: Sight) -> Noticed:
        return {"risk": ranked_risks(self.file, self.name).get(sight.probe_id, UNKNOWN)}

    def decide(self, levels: Sequence[Budget], noticed: Noticed, passes: Sequence[LevelAnswer]) -> Budget | None:
        if passes:
            return None
        return levels[min(len(levels) - 1, int(noticed["risk"] * len(levels)))]
