"""A campaign: a folder of items that people are asked about, what each of them said, and who gets which item next."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.places.listing import read_text
from sightline.probes.fetched_images import resolve_image
from sightline.probes.images import image_digest
from sightline.statistics.agreement import BoxAgreement, box_agreement
from sightline_annotate.items import (
    BOXES,
    REGION,
    ROLE,
    TEXT,
    CampaignKind,
    WorkItem,
    hashed,
    items_digest,
    kind_named,
    read_items,
)
from sightline_annotate.journal import ADJUDICATION, FIRST, PASSES, SECOND, Journal, JournalEntry

# A campaign is a folder: task.json says what it is, items.jsonl what is asked, journal.sqlite what people said.

RECORD, ITEMS, JOURNAL = "task.json", "items.jsonl", "journal.sqlite"
VERSION = 1


@dataclass(frozen=True)
class Campaign:
    """An opened campaign."""

    path: Path
    record: dict[str, Any]
    items: tuple[WorkItem, ...]

    @property
    def kind(self) -> CampaignKind:
        return kind_named(self.record["kind"])

    @property
    def journal(self) -> Journal:
        return Journal(self.path / JOURNAL)

    @property
    def images(self) -> Path:
        """Relative to the campaign folder, so that both can be moved together."""
        return self.path / str(self.record["images"])

    @cached_property
    def by_id(self) -> dict[str, WorkItem]:
        return {item.id: item for item in self.items}

    @cached_property
    def digest(self) -> str:
        return items_digest(self.items)

    def item(self, name: str) -> WorkItem:
        if name not in self.by_id:
            raise SightlineError(f"{self.path} has no item {name!r}")
        return self.by_id[name]

    def refuse_missing_pictures(self) -> None:
        """One line before anything is served; whether pixels changed is seen when a picture is shown."""
        for item in self.items:
            for view in item.views:
                if not resolve_image(self.images, view.image).is_file():
                    raise SightlineError(
                        f"picture {view.image} is not in {self.images}; put the folder back where it was"
                    )

    def picture(self, name: str, view: int) -> Path:
        """The file of one picture, if its pixels are those that the campaign was made of."""
        views = self.item(name).views
        if not 0 <= view < len(views):
            raise SightlineError(f"item {name!r} has no picture {view}")
        path = resolve_image(self.images, views[view].image)
        if not path.is_file():
            raise SightlineError(f"picture {path} is gone")
        if image_digest(path) != views[view].digest:
            raise SightlineError(f"picture {path} was changed after the campaign was made")
        return path


def open_campaign(path: Path) -> Campaign:
    """Reads a campaign and refuses one whose items are not those that it was made with."""
    try:
        record = json.loads(read_text(path / RECORD))
    except FileNotFoundError:
        raise SightlineError(f"{path} is no campaign; make one with 'sightline annotate new'") from None
    except (OSError, ValueError) as problem:
        raise SightlineError(f"{path / RECORD} cannot be read: {problem}") from None
    if not isinstance(record, dict) or record.get("sightline_task") != VERSION:
        raise SightlineError(f"{path / RECORD} is not a campaign of version {VERSION}, which this Sightline reads")
    found = Campaign(path, record, tuple(read_items(path / ITEMS)))
    if found.digest != record.get("items_digest"):
        raise SightlineError(
            f"{path / ITEMS} was changed after the campaign was made; answers would be about other items"
        )
    if not (path / JOURNAL).is_file():
        raise SightlineError(f"{path} has lost its {JOURNAL}; put it back from a copy")
    return found


# What holds about every item: the reading of each person, where two of them differ, and what is final.

AGREED, ADJUDICATED, ALONE = "agreement", "adjudicated", "first_only"
"""Where a final answer comes from."""


@dataclass(frozen=True)
class Judgements:
    """The confirmed answers about one item, by pass."""

    kind: CampaignKind
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

    @property
    def readers(self) -> set[str]:
        """Who read an item that two people read."""
        return {self.given[each].who for each in (FIRST, SECOND)}

    @cached_property
    def boxes(self) -> BoxAgreement:
        """How the two people's boxes fit."""
        assert self.twice is not None
        (one, labels), (two, others) = (boxes_and_labels(fields) for fields in self.twice)
        return box_agreement(one, two, labels, others)

    @property
    def differing(self) -> tuple[str, ...]:
        """The fields on which two people differ. Free texts never do, unless what is typed is the answer."""
        if self.twice is None:
            return ()
        first, second = self.twice
        named = [each.name for each in self.kind.fields if first[each.name] != second[each.name]]
        drawn = self.kind.draws_boxes and (bool(first[BOXES]) or bool(second[BOXES])) and self.boxes.needs_adjudication
        typed = (self.kind.typed[0],) if self.kind.typed and len(set(map(self.kind.typed_text, self.twice))) > 1 else ()
        return (*named, *typed, *((BOXES,) if drawn else ()))

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


def read_judgements(campaign: Campaign) -> list[Judgements]:
    """Every item with what is confirmed about it now; drafts and undone answers do not count."""
    given: dict[str, dict[str, JournalEntry]] = {}
    for entry in campaign.journal.current():
        if entry.confirmed:
            given.setdefault(entry.item, {})[entry.pass_] = entry
    return [Judgements(campaign.kind, item, given.get(item.id, {})) for item in campaign.items]


# What one person has to do in one pass, and what they may see: their own work and nobody else's.

NAME_LENGTH = 80


@dataclass(frozen=True)
class WorkQueue:
    """One person's part of a campaign."""

    campaign: Campaign
    who: str
    pass_: str = FIRST
    allow_party: bool = False
    """Whether one of the two who differ may adjudicate, as in the paper's artifact."""

    def __post_init__(self) -> None:
        check_name(self.who)
        if self.pass_ not in PASSES:
            raise SightlineError(f"pass {self.pass_!r} is not one of {', '.join(PASSES)}")
        if self.pass_ == ADJUDICATION and not self.allow_party:
            for each in read_judgements(self.campaign):
                if each.disputed and self.who in each.readers:
                    raise SightlineError(
                        f"{self.who} is one of the two who differ about {each.item.id!r}; let a third person decide, "
                        "or pass --allow-party to have it on record that one of them did"
                    )

    def own(self) -> dict[str, JournalEntry]:
        """What this person has said in this pass, by item."""
        return {entry.item: entry for entry in self.campaign.journal.current(self.pass_, self.who)}

    def items(self) -> list[WorkItem]:
        """This person's items: their own, and those that nobody has begun."""
        current = self.campaign.journal.current()
        taken = {entry.item for entry in current if entry.pass_ == self.pass_ and entry.who != self.who}
        other = {FIRST: SECOND, SECOND: FIRST}.get(self.pass_)
        read = {entry.item for entry in current if entry.pass_ == other and entry.who == self.who}
        return [item for item in self._offered() if item.id not in taken | read]

    def _offered(self) -> list[WorkItem]:
        if self.pass_ == FIRST:
            return list(self.campaign.items)
        if self.pass_ == SECOND:
            return [item for item in self.campaign.items if item.second]
        differing = (each for each in read_judgements(self.campaign) if each.differing)
        return [each.item for each in differing if self.allow_party or self.who not in each.readers]

    def next_item(self) -> WorkItem | None:
        """The first of this person's items that is not answered and not open before somebody else."""
        done = {name for name, entry in self.own().items() if entry.confirmed}
        busy = self.campaign.journal.open_elsewhere(self.pass_, self.who)
        return next((item for item in self.items() if item.id not in done | busy), None)

    def progress(self) -> dict[str, int]:
        """Of this person alone."""
        mine, own = self.items(), self.own()
        done = sum(own[item.id].confirmed for item in mine if item.id in own)
        return {"done": done, "all": len(mine)}

    def save(self, name: str, fields: Any, *, confirmed: bool, supersedes: int | None) -> JournalEntry:
        """Checks and writes down what the person says; on disk when this returns."""
        item = self.campaign.item(name)
        if item.id not in {each.id for each in self.items()}:
            raise SightlineError(f"item {name!r} is not one of {self.who}'s in the {self.pass_} pass")
        checked = self.campaign.kind.check(fields, confirmed=confirmed)
        return self.campaign.journal.append(
            self.who, self.pass_, name, checked, confirmed=confirmed, supersedes=supersedes
        )

    def undo(self) -> JournalEntry | None:
        return self.campaign.journal.undo(self.who, self.pass_)

    def both_judgements(self, name: str) -> Mapping[str, Any] | None:
        """For the adjudicator alone: the two answers, without names and in an order that does not give them away."""
        if self.pass_ != ADJUDICATION:
            return None
        found = next(each for each in read_judgements(self.campaign) if each.item.id == name)
        assert found.twice is not None
        ordered = found.twice if int(hashed("readings", name), 16) % 2 else found.twice[::-1]
        return {"readings": list(ordered), "differing": list(found.differing)}


def check_name(who: str) -> None:
    if not who.strip() or len(who) > NAME_LENGTH or not who.isprintable() or who != who.strip():
        raise SightlineError(f"--as {who!r} is not a name of 1 to {NAME_LENGTH} printable characters")


# How far a campaign is: counts alone, so that anybody may look while others still work blind.


def status_lines(campaign: Campaign) -> Iterator[tuple[str, str]]:
    """Label and words."""
    judgements = read_judgements(campaign)
    drafts = [entry for entry in campaign.journal.current() if entry.fields and not entry.confirmed]
    yield "campaign", f"{campaign.kind.name}, {len(campaign.items)} items"
    wanted = {FIRST: len(campaign.items), SECOND: sum(item.second for item in campaign.items)}
    for name in (FIRST, SECOND):
        given = [each.given[name].who for each in judgements if name in each.given]
        begun = sum(entry.pass_ == name for entry in drafts)
        people = ", ".join(f"{who} {given.count(who)}" for who in sorted(set(given)))
        yield f"{name} pass", f"{len(given)} of {wanted[name]} done, {begun} begun" + (f" ({people})" if people else "")
    differing = [each for each in judgements if each.differing]
    deciders = sorted({each.given[ADJUDICATION].who for each in differing if ADJUDICATION in each.given})
    words = f"{len(differing)}, of which {sum(each.disputed for each in differing)} open"
    yield "disagreements", words + (f" (decided by {', '.join(deciders)})" if deciders else "")
    yield "final", f"{sum(each.final is not None for each in judgements)} of {len(campaign.items)}"
