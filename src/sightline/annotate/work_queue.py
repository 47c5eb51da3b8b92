"""What one person has to do in one pass, and what they may see: their own work and nobody else's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sightline.annotate.item_order import hashed
from sightline.annotate.journal import ADJUDICATION, FIRST, PASSES, SECOND, JournalEntry
from sightline.annotate.readings import ItemReadings, all_readings, refuse_party
from sightline.annotate.task_folder import TaskFolder
from sightline.annotate.work_items import WorkItem
from sightline.errors import SightlineError

NAME_LENGTH = 80


@dataclass(frozen=True)
class WorkQueue:
    """One person's part of a task."""

    task: TaskFolder
    who: str
    pass_: str = FIRST
    allow_party: bool = False
    """Whether one of the two who differ may adjudicate, as in the paper's artifact."""

    def __post_init__(self) -> None:
        check_name(self.who)
        if self.pass_ not in PASSES:
            raise SightlineError(f"pass {self.pass_!r} is not one of {', '.join(PASSES)}")
        if self.pass_ == ADJUDICATION:
            readings = all_readings(self.task)
            if not self.allow_party:
                refuse_party(readings, self.who)

    def own(self) -> dict[str, JournalEntry]:
        """What this person has said in this pass, by item."""
        return {entry.item: entry for entry in self.task.journal.current(self.pass_, self.who)}

    def items(self) -> list[WorkItem]:
        """This person's items: their own, and those that nobody has begun."""
        current = self.task.journal.current()
        taken = {entry.item for entry in current if entry.pass_ == self.pass_ and entry.who != self.who}
        other = {FIRST: SECOND, SECOND: FIRST}.get(self.pass_)
        read = {entry.item for entry in current if entry.pass_ == other and entry.who == self.who}
        return [item for item in self._offered() if item.id not in taken | read]

    def _offered(self) -> list[WorkItem]:
        if self.pass_ == FIRST:
            return list(self.task.items)
        if self.pass_ == SECOND:
            return [item for item in self.task.items if item.second]
        return [each.item for each in all_readings(self.task) if each.differing and self._may_decide(each)]

    def _may_decide(self, readings: ItemReadings) -> bool:
        parties = {readings.given[each].who for each in (FIRST, SECOND)}
        return self.allow_party or self.who not in parties

    def next_item(self) -> WorkItem | None:
        """The first of this person's items that is not answered and not open before somebody else."""
        done = {name for name, entry in self.own().items() if entry.confirmed}
        busy = self.task.journal.leased_by_others(self.pass_, self.who)
        return next((item for item in self.items() if item.id not in done | busy), None)

    def progress(self) -> dict[str, int]:
        """Of this person alone."""
        mine = self.items()
        own = self.own()
        done = sum(own[item.id].confirmed for item in mine if item.id in own)
        return {"done": done, "all": len(mine)}

    def save(self, name: str, fields: Any, *, confirmed: bool, supersedes: int | None) -> JournalEntry:
        """Checks and writes down what the person says; on disk when this returns."""
        item = self.task.item(name)
        if item.id not in {each.id for each in self.items()}:
            raise SightlineError(f"item {name!r} is not one of {self.who}'s in the {self.pass_} pass")
        checked = self.task.kind.check(fields, confirmed=confirmed)
        return self.task.journal.append(self.who, self.pass_, name, checked, confirmed=confirmed, supersedes=supersedes)

    def undo(self) -> JournalEntry | None:
        return self.task.journal.undo(self.who, self.pass_)

    def both_readings(self, name: str) -> Mapping[str, Any] | None:
        """For the adjudicator alone: the two answers, without names and in an order that does not give them away."""
        if self.pass_ != ADJUDICATION:
            return None
        found = next(each for each in all_readings(self.task) if each.item.id == name)
        assert found.twice is not None
        ordered = found.twice if int(hashed("readings", name), 16) % 2 else found.twice[::-1]
        return {"readings": list(ordered), "differing": list(found.differing)}


def check_name(who: str) -> None:
    if not who.strip() or len(who) > NAME_LENGTH or not who.isprintable() or who != who.strip():
        raise SightlineError(f"--as {who!r} is not a name of 1 to {NAME_LENGTH} printable characters")
