"""What holds about every item: the reading of each person, where two of them differ, and what is final."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sightline.annotate.journal import ADJUDICATION, FIRST, SECOND, JournalEntry
from sightline.annotate.task_folder import TaskFolder
from sightline.annotate.task_kinds import BOXES, REGION, ROLE, TEXT, TaskKind
from sightline.annotate.work_items import WorkItem
from sightline.errors import SightlineError
from sightline.statistics.agreement import BoxAgreement, box_agreement

AGREED, ADJUDICATED, ALONE = "agreement", "adjudicated", "first_only"
"""Where a final answer comes from."""


@dataclass(frozen=True)
class ItemReadings:
    """The confirmed answers about one item, by pass."""

    kind: TaskKind
    item: WorkItem
    given: Mapping[str, JournalEntry] = field(default_factory=dict)

    def fields(self, pass_: str) -> dict[str, Any] | None:
        entry = self.given.get(pass_)
        return None if entry is None else entry.fields

    @cached_property
    def twice(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Both people's answers; None unless two people gave one."""
        first, second = self.fields(FIRST), self.fields(SECOND)
        return None if first is None or second is None else (first, second)

    @cached_property
    def boxes(self) -> BoxAgreement:
        """How the two people's boxes fit."""
        assert self.twice is not None
        (one, labels), (two, others) = (boxes_and_labels(fields) for fields in self.twice)
        return box_agreement(one, two, labels, others)

    @property
    def differing(self) -> tuple[str, ...]:
        """The fields on which two people differ. Free texts never do."""
        if self.twice is None:
            return ()
        first, second = self.twice
        named = [each.name for each in self.kind.fields if first[each.name] != second[each.name]]
        drawn = self.kind.draws_boxes and (bool(first[BOXES]) or bool(second[BOXES])) and self.boxes.needs_adjudication
        return (*named, *((BOXES,) if drawn else ()))

    @property
    def disputed(self) -> bool:
        """Whether a third person has to decide and has not yet."""
        return bool(self.differing) and ADJUDICATION not in self.given

    @property
    def missing(self) -> tuple[str, ...]:
        """Passes that this item still waits for, adjudication aside."""
        wanted = (FIRST, SECOND) if self.item.second else (FIRST,)
        return tuple(each for each in wanted if each not in self.given)

    @property
    def final(self) -> tuple[dict[str, Any], str] | None:
        """The fields that count and where they come from; None while somebody still has to speak."""
        if self.missing or self.disputed:
            return None
        if self.differing:
            return _said(self.given[ADJUDICATION]), ADJUDICATED
        return _said(self.given[FIRST]), AGREED if self.item.second else ALONE


def _said(entry: JournalEntry) -> dict[str, Any]:
    assert entry.fields is not None
    return entry.fields


def boxes_and_labels(fields: Mapping[str, Any]) -> tuple[list[list[float]], list[str]]:
    """Regions, and labels as ``role:text``."""
    return [box[REGION] for box in fields[BOXES]], [f"{box[ROLE]}:{box[TEXT]}" for box in fields[BOXES]]


def all_readings(task: TaskFolder) -> list[ItemReadings]:
    """Every item with what is confirmed about it now; drafts and undone answers do not count."""
    given: dict[str, dict[str, JournalEntry]] = {}
    for entry in task.journal.current():
        if entry.confirmed:
            given.setdefault(entry.item, {})[entry.pass_] = entry
    return [ItemReadings(task.kind, item, given.get(item.id, {})) for item in task.items]


def refuse_party(readings: Iterable[ItemReadings], who: str) -> None:
    """An adjudicator is a third person: neither of the two who differ."""
    for each in readings:
        if each.disputed and who in {each.given[FIRST].who, each.given[SECOND].who}:
            raise SightlineError(
                f"{who} is one of the two who differ about {each.item.id!r}; let a third person decide, or pass "
                "--allow-party to have it on record that one of them did"
            )
