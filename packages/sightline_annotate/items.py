"""What people are asked: items, and kinds of campaign with their questions."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from sightline.core.probe import Box
from sightline.errors import SightlineError, printable
from sightline.probes.data_rows import read_objects
from sightline.probes.fetched_images import check_image_name
from sightline.probes.probe_file import lines_digest
from sightline.probes.regions import ROLES, four_numbers
from sightline.probes.typed_rows import ANNOTATED

# The items of a campaign: what is shown of each, and what is known of it that annotators are not shown.


@dataclass(frozen=True)
class PictureView:
    """One picture of an item."""

    caption: str
    image: str
    """File name relative to the image folder."""
    size: tuple[int, int]
    """Width and height in pixels."""
    digest: str
    """Of the image file: annotators of one campaign see the same pixels."""
    regions: tuple[Box, ...] = ()
    """Outlined for the annotator; empty where they are to draw them."""


@dataclass(frozen=True)
class WorkItem:
    """One thing to annotate. No model's answer is in it, so none can be shown."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    id: str
    image_id: str
    question: str
    views: tuple[PictureView, ...]
    source_text: str = ""
    target_text: str = ""
    answers: tuple[str, ...] = ()
    """Accepted answers of an open question: what is evidence depends on them."""
    task: str = ""
    probes: tuple[str, ...] = ()
    """The probes that the decision on this item is about."""
    batch: int = 0
    stratum: str = ""
    """What a sample is spread over."""
    difficulty: str = ""
    """What the second sample of a batch is spread over."""
    second: bool = False
    """Whether a second person annotates it too."""
    suspicion: tuple[str, ...] = ()
    """Why it comes first. Never shown: it would lead the annotator."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further columns of the artifact's manifest."""

    @property
    def shown(self) -> dict[str, Any]:
        """What the page gets; nothing that says why the item was chosen."""
        return {
            "id": self.id, "question": self.question, "source_text": self.source_text,
            "target_text": self.target_text, "answers": list(self.answers),
            "views": [{"caption": v.caption, "size": v.size, "regions": v.regions} for v in self.views],
        }  # fmt: skip


Answer = tuple[WorkItem, dict[str, Any], str]
"""Item, fields, and who said so: a person, or where a final answer comes from."""


def items_text(items: Iterable[WorkItem]) -> str:
    return "".join(json.dumps(asdict(item), ensure_ascii=False, allow_nan=False) + "\n" for item in items)


def items_digest(items: Iterable[WorkItem]) -> str:
    return lines_digest(map(asdict, items))


def read_items(path: Path) -> list[WorkItem]:
    from pydantic import TypeAdapter, ValidationError

    reader = TypeAdapter(WorkItem)
    items: dict[str, WorkItem] = {}
    for number, row in read_objects(path):
        try:
            item = reader.validate_python(row)
        except ValidationError as problem:
            wrong = problem.errors()[0]
            where = ".".join(map(str, wrong["loc"]))
            raise SightlineError(
                f"{path} line {number} is not an item of a campaign: {where}: {wrong['msg']}"
            ) from None
        for view in item.views:
            check_image_name(view.image)
        if item.id in items:
            raise SightlineError(f"{path} line {number}: item {item.id!r} occurs twice")
        items[item.id] = item
    if not items:
        raise SightlineError(f"{path} holds no items")
    return list(items.values())


# What people are asked: the fields of each kind of campaign, their answers, and what makes an item valid.

Fields = Mapping[str, Any]
"""What an annotator said of one item, by field."""

YES_NO = ("yes", "no", "unclear")
BOXES, STATUS, TEXT, REGION, ROLE = "boxes", "status", "text", "region", "role"


class AnswerError(SightlineError):
    """An answer that does not do, in the words of the questions; ``field`` is the one to look at again."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class AskedField:
    """One thing to decide about an item."""

    name: str
    asks: str
    answers: tuple[str, ...] = YES_NO
    valid: str = "yes"
    """The answer that a valid item has."""


@dataclass(frozen=True)
class CampaignKind:
    """A kind of campaign. ``decision`` is the field that says what becomes of the item."""

    name: str
    title: str
    about: str
    fields: tuple[AskedField, ...]
    decision: str
    remarks: tuple[tuple[str, str], ...]
    """Free texts that may stay empty: field and what to write there."""
    draws_boxes: bool = False
    typed: tuple[str, str] | None = None
    """The remark that is an answer, what stands in the box, and the decision with which it is given."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every field, in the order of the artifact's columns."""
        drawn = (BOXES,) if self.draws_boxes else ()
        return (*drawn, *(field.name for field in self.fields), *(name for name, _ in self.remarks))

    def field(self, name: str) -> AskedField:
        return next(field for field in self.fields if field.name == name)

    def is_valid(self, fields: Fields) -> bool:
        """Whether the item counts: strictly valid by its decision."""
        return bool(fields[self.decision] == self.field(self.decision).valid)

    def typed_text(self, fields: Fields) -> str:
        """What somebody typed as an answer; blanks at its ends and repeated ones say nothing."""
        return "" if self.typed is None else " ".join(str(fields.get(self.typed[0], "")).split())

    def check(self, fields: Any, *, confirmed: bool) -> dict[str, Any]:
        """The fields, if an annotator may say them; a draft may leave some out."""
        if not isinstance(fields, dict):
            raise SightlineError("an answer must be an object of fields")
        unknown = sorted(set(fields) - set(self.names))
        if unknown:
            raise SightlineError(
                f"unknown field {unknown[0]!r}; a campaign of this kind asks for {', '.join(self.names)}"
            )
        for each in self.fields:
            answer = fields.get(each.name, "")
            if answer not in (*each.answers, ""):
                raise AnswerError(f"'{each.asks}' is {answer!r}, not one of {', '.join(each.answers)}", each.name)
        missing = [each for each in self.fields if not fields.get(each.name)]
        if confirmed and missing:
            raise AnswerError(f"'{missing[0].asks}' is not answered yet", missing[0].name)
        checked = {name: fields[name] for name in self.names if name in fields}
        for name, says in self.remarks:
            _refuse_unseen(fields.get(name, ""), says)
        if self.draws_boxes:
            drawn = fields.get(BOXES, [])
            if not isinstance(drawn, list):
                raise SightlineError("boxes must be a list")
            checked[BOXES] = [_checked_box(box) for box in drawn]
        if confirmed:
            self._refuse_contradiction(checked)
        return checked

    def _refuse_contradiction(self, fields: Fields) -> None:
        """A valid decision stands on valid answers; for boxes, on at least one. A typed text goes with one decision."""
        if self.typed is not None and self.typed_text(fields) and fields[self.decision] != self.typed[1]:
            decided, other = (name.replace("_", " ") for name in (fields[self.decision], self.typed[1]))
            raise AnswerError(
                f"you decided '{decided}', but typed another text; take it out, or decide '{other}'", self.decision
            )
        if not self.is_valid(fields):
            return
        if self.draws_boxes and not fields[BOXES]:
            raise SightlineError(f"{ANNOTATED} without a box; draw one, or choose another status")
        for each in self.fields:
            if fields[each.name] != each.valid:
                decided, said = (fields[name].replace("_", " ") for name in (self.decision, each.name))
                raise AnswerError(
                    f"you decided '{decided}', but answered '{said}' to '{each.asks}'; change one of the two", each.name
                )


def _refuse_unseen(text: Any, where: str) -> None:
    """A text holds what people can see: no control characters, nothing that turns what follows round."""
    if not isinstance(text, str):
        raise SightlineError(f"'{where}' is not a text")
    unseen = next((letter for letter in text if printable(letter, keep="\n\t\r") != letter), None)
    if unseen is not None:
        raise SightlineError(f"'{where}' holds a character that is not to be seen, U+{ord(unseen):04X}; take it out")


def _checked_box(box: Any) -> dict[str, Any]:
    """A box in fractions of the image, with its role and what is written in it."""
    four = four_numbers(box.get(REGION)) if isinstance(box, dict) else None
    if four is None:
        raise SightlineError(f"box {box!r} is not an object with a region of four numbers, a role and a text")
    x1, y1, x2, y2 = four
    if not (0.0 <= x1 < x2 <= 1.0 and 0.0 <= y1 < y2 <= 1.0):
        raise SightlineError(f"region {list(four)} is not x1 < x2, y1 < y2 within the image (fractions from 0 to 1)")
    role, text = box.get(ROLE), box.get(TEXT, "")
    if not isinstance(role, str) or role not in ROLES:
        raise SightlineError(f"role {role!r} is not one of {', '.join(ROLES)}")
    _refuse_unseen(text, "text of a box")
    return {REGION: list(four), ROLE: role, TEXT: text}


def _kind(name: str, told: dict[str, Any]) -> CampaignKind:
    asked = (AskedField(**{**each, "answers": tuple(each.get("answers", YES_NO))}) for each in told.pop("fields"))
    remarks = tuple((field, says) for field, says in told.pop("remarks"))
    typed = told.pop("typed", None)
    return CampaignKind(name, fields=tuple(asked), remarks=remarks, typed=typed and (typed[0], typed[1]), **told)


_TOLD = tomllib.loads((Path(__file__).parent / "kinds.toml").read_text(encoding="utf-8"))
KINDS = {name: _kind(name, told) for name, told in _TOLD.items()}
HARD_NEGATIVES, TEXT_REPLACEMENT, EVIDENCE, TEXTS = KINDS.values()


def kind_named(name: str) -> CampaignKind:
    if name not in KINDS:
        raise SightlineError(f"unknown kind of campaign {name!r}; choose from {', '.join(KINDS)}")
    return KINDS[name]


def hashed(seed: str, item_id: str) -> str:
    return hashlib.sha256(f"{seed}|{item_id}".encode()).hexdigest()
