"""Budgets by the risk of each sample, from a file that something else made."""

from __future__ import annotations

import csv
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from typing import ClassVar

import numpy as np
from scipy.stats import rankdata

from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.policies.base import POLICIES, FilePolicy, LevelAnswer, Noticed, Sight, read_bytes

UNKNOWN = 0.5
"""The risk of a sample that the file does not name."""
IDS = ("probe_id", "sample_id", "id")


@lru_cache(maxsize=8)
def ranked_risks(file: str, policy: str) -> dict[str, float]:
    """A CSV file's column ``risk`` by ``probe_id``, as ranks from 0, the least risk, to 1; equal risks share one."""
    try:
        table = csv.DictReader(StringIO(read_bytes(file, policy).decode("utf-8-sig")))
        named = next((name for name in IDS if name in (table.fieldnames or ())), None)
        if named is None or "risk" not in (table.fieldnames or ()):
            raise SightlineError(f"{policy}: {file} needs a column probe_id and a column risk")
        risks = {str(line[named]): _number(line["risk"], file, policy) for line in table}
    except (UnicodeDecodeError, csv.Error) as error:
        raise SightlineError(f"{policy}: {file} is not a CSV file: {error}") from None
    if not risks:
        raise SightlineError(f"{policy}: {file} has no lines")
    if len(risks) == 1:
        return dict.fromkeys(risks, UNKNOWN)
    ranks = (rankdata(np.asarray(list(risks.values()))) - 1.0) / (len(risks) - 1)
    return dict(zip(risks, ranks.tolist(), strict=True))


def _number(text: str | None, file: str, policy: str) -> float:
    try:
        risk = float(text or "")
    except ValueError:
        risk = math.nan
    if not math.isfinite(risk):
        raise SightlineError(f"{policy}: {file} has the risk '{text}', which is not a number")
    return risk


@dataclass(frozen=True)
class _ByRisk(FilePolicy):
    """``file`` is a CSV with columns ``probe_id`` and ``risk``; a sample that it does not name is in the middle."""

    def __post_init__(self) -> None:
        ranked_risks(self.file, self.name)  # a file that cannot be used is refused with its arm

    def look(self, sight: Sight) -> Noticed:
        return {"risk": ranked_risks(self.file, self.name).get(sight.probe_id, UNKNOWN)}

    def decide(self, levels: Sequence[Budget], noticed: Noticed, passes: Sequence[LevelAnswer]) -> Budget | None:
        return None if passes else self.budget_at(noticed["risk"], levels)

    @abstractmethod
    def budget_at(self, risk: float, levels: Sequence[Budget]) -> Budget:
        """Of a sample with this rank of risk, from 0 to 1."""


@POLICIES.register("risk_adaptive")
@dataclass(frozen=True)
class RiskAdaptive(_ByRisk):
    """A kept fraction between two levels, in proportion to the rank of a sample's risk in a file.

    Before any answer: low + risk * (high - low). ``file`` is a CSV with columns ``probe_id`` and ``risk``; a sample
    that it does not name is in the middle. Nearly every sample has a budget, and so a batch, of its own.
    """

    name: ClassVar[str] = "risk_adaptive"

    def check_levels(self, levels: Sequence[Budget]) -> None:
        if len(levels) != 2 or any(level.keep is None for level in levels):
            raise SightlineError(f"{self.name} goes from one kept fraction to another: write two, for example 0.15/0.7")

    def budget_at(self, risk: float, levels: Sequence[Budget]) -> Budget:
        low, high = (level.keep or 0.0 for level in levels)
        return Budget.ratio(low + risk * (high - low))


@POLICIES.register("risk_bucket")
@dataclass(frozen=True)
class RiskBucket(_ByRisk):
    """A level by the rank of a sample's risk in a file: of three levels one for each third.

    Before any answer. ``file`` is a CSV with columns ``probe_id`` and ``risk``; a sample that it does not name is in
    the middle.
    """

    name: ClassVar[str] = "risk_bucket"

    def budget_at(self, risk: float, levels: Sequence[Budget]) -> Budget:
        return levels[min(len(levels) - 1, int(risk * len(levels)))]
