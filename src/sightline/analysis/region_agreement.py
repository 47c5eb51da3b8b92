"""How far two people agree on the evidence of open questions: number, place and roles of the regions that each drew."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sightline.errors import SightlineError
from sightline.probes.roles import ROLES
from sightline.probes.typed_rows import ANNOTATED, TypedRow
from sightline.statistics.agreement import BoxAgreement, box_agreement


class DrawnTwice(NamedTuple):
    """One question that both people annotated."""

    first: TypedRow
    second: TypedRow

    @property
    def boxes(self) -> BoxAgreement:
        sides = [[(box.x, box.y, box.x + box.w, box.y + box.h) for box in row.boxes] for row in self]
        labels = [[box.label for box in row.boxes] for row in self]
        return box_agreement(sides[0], sides[1], labels[0], labels[1])

    @property
    def same_count(self) -> bool:
        return len(self.first.boxes) == len(self.second.boxes)


def drawn_twice(first: Sequence[TypedRow], second: Sequence[TypedRow]) -> list[DrawnTwice]:
    """The questions that both annotated, in the order of the first; pixels are those of the image as both saw it."""
    others = {row.sample_id: row for row in second if row.status == ANNOTATED}
    return [
        DrawnTwice(row, others[row.sample_id]) for row in first if row.status == ANNOTATED and row.sample_id in others
    ]


def region_agreement(rows: Sequence[DrawnTwice]) -> Mapping[str, float]:
    """Counts of questions and means over them.

    ``n`` questions; ``same_count``, ``same_roles`` and ``all_matched`` (equally many boxes, every pair at IoU >= 0.5)
    count them. ``matched_iou`` is the mean over questions of that of their matched pairs, 0 where nothing is matched;
    ``union_iou`` compares the areas that each marked, ``first_covered`` is the share of the first's in the second's.
    """
    if not rows:
        raise SightlineError("the two annotators have no annotated question in common")
    found = [row.boxes for row in rows]
    return {
        "n": len(rows),
        "same_count": sum(row.same_count for row in rows),
        "same_roles": sum(each.same_types for each in found),
        "all_matched": sum(each.all_matched for each in found),
        "matched_iou": float(np.mean([np.mean(each.matched_iou or [0.0]) for each in found])),
        "union_iou": float(np.mean([each.union_iou for each in found])),
        "first_covered": float(np.mean([each.first_covered for each in found])),
        "second_covered": float(np.mean([each.second_covered for each in found])),
    }


@dataclass(frozen=True)
class RoleAgreement:
    """Questions in which a role was used: by the first person, by the second, by both."""

    first: int
    second: int
    both: int

    @property
    def f1(self) -> float:
        """2 both / (first + second); nan for a role that nobody used."""
        used = self.first + self.second
        return 2 * self.both / used if used else math.nan


def role_agreement(rows: Sequence[DrawnTwice]) -> dict[str, RoleAgreement]:
    """By role, over the questions that both annotated."""
    if not rows:
        raise SightlineError("the two annotators have no annotated question in common")
    used = [tuple({box.role for box in side.boxes} for side in row) for row in rows]
    return {
        role: RoleAgreement(
            sum(role in first for first, _ in used),
            sum(role in second for _, second in used),
            sum(role in first & second for first, second in used),
        )
        for role in ROLES
    }
