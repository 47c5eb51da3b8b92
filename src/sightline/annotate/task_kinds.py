"""What people are asked: the fields of each kind of task, their answers, and what makes an item valid.

Fields and answers are called as in the paper's artifact, so that its files and ours are read alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sightline.errors import SightlineError, printable
from sightline.probes.box_format import four_numbers
from sightline.probes.roles import ROLES
from sightline.probes.typed_rows import ANNOTATED

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
class TaskKind:
    """A kind of task. ``decision`` is the field that says what becomes of the item."""

    name: str
    title: str
    about: str
    fields: tuple[AskedField, ...]
    decision: str
    remarks: tuple[tuple[str, str], ...]
    """Free texts that may stay empty: field and what to write there."""
    draws_boxes: bool = False

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

    def check(self, fields: Any, *, confirmed: bool) -> dict[str, Any]:
        """The fields, if an annotator may say them; a draft may leave some out."""
        if not isinstance(fields, dict):
            raise SightlineError(f"an answer is an object of fields, not {type(fields).__name__}")
        unknown = sorted(set(fields) - set(self.names))
        if unknown:
            raise SightlineError(f"unknown field {unknown[0]!r}; a task of this kind asks for {', '.join(self.names)}")
        for field in self.fields:
            answer = fields.get(field.name, "")
            if answer not in (*field.answers, ""):
                raise AnswerError(f"'{field.asks}' is {answer!r}, not one of {', '.join(field.answers)}", field.name)
        missing = [field for field in self.fields if not fields.get(field.name)]
        if confirmed and missing:
            raise AnswerError(f"'{missing[0].asks}' is not answered yet", missing[0].name)
        checked = {name: fields[name] for name in self.names if name in fields}
        for name, says in self.remarks:
            _refuse_unseen(fields.get(name, ""), says)
        if self.draws_boxes:
            checked[BOXES] = [_checked_box(box) for box in _list(fields.get(BOXES, []))]
        if confirmed:
            self._refuse_contradiction(checked)
        return checked

    def _refuse_contradiction(self, fields: Fields) -> None:
        """A valid decision stands on valid answers; for boxes, on at least one."""
        if not self.is_valid(fields):
            return
        if self.draws_boxes and not fields[BOXES]:
            raise SightlineError(f"{ANNOTATED} without a box; draw one, or choose another status")
        for field in self.fields:
            if fields[field.name] != field.valid:
                decided, said = (fields[name].replace("_", " ") for name in (self.decision, field.name))
                raise AnswerError(
                    f"you decided '{decided}', but answered '{said}' to '{field.asks}'; change one of the two",
                    field.name,
                )


def _refuse_unseen(text: Any, where: str) -> None:
    """A text holds what people can see: no control characters, nothing that turns what follows round."""
    if not isinstance(text, str):
        raise SightlineError(f"'{where}' is not a text")
    unseen = next((letter for letter in text if printable(letter, keep="\n\t\r") != letter), None)
    if unseen is not None:
        raise SightlineError(f"'{where}' holds a character that is not to be seen, U+{ord(unseen):04X}; take it out")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise SightlineError(f"boxes are a list, not {type(value).__name__}")
    return value


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


_REMARKS = (("invalid_reason", "Why it is not valid"), ("annotator_notes", "Notes"))

HARD_NEGATIVES = TaskKind(
    "hard-negatives",
    "Hard negatives",
    "A word stands in the image; the question asks for another one that looks almost alike. Is the other one absent?",
    (
        AskedField("human_source_text_visible", "Can you read the word in the picture?"),
        AskedField("human_target_text_visible_same_image", "Is the asked word anywhere in the picture?", valid="no"),
        AskedField(
            "target_absent_after_case_punct_normalization",
            "Is it absent even if case and punctuation do not count?",
        ),
        AskedField("source_bbox_matches_source_text", "Does the box enclose the word?"),
        AskedField(
            "qc_decision",
            "What is this item?",
            ("valid_negative", "invalid_target_present", "invalid_source_not_visible", "invalid_bad_box", "unclear"),
            "valid_negative",
        ),
    ),
    "qc_decision",
    _REMARKS,
)
TEXT_REPLACEMENT = TaskKind(
    "text-replacement",
    "Text replacement",
    "One word of the picture was repainted: as another word, as itself, and not at all. Did all three work?",
    (
        AskedField("source_visible_original", "Original: can you read the word?"),
        AskedField("source_readable_sham", "Repainted with itself: can you read the word?"),
        AskedField("replacement_readable_edited", "Replaced: can you read the new word?"),
        AskedField("source_absent_edited", "Replaced: is the old word gone?"),
        AskedField("source_absent_erase", "Erased: is the old word gone?"),
        AskedField("replacement_absent_erase", "Erased: is the new word absent?"),
        AskedField("local_edit_plausible", "Does the painted place look plausible?"),
        AskedField("no_unrelated_text_changed", "Is all other text as it was?"),
        AskedField(
            "decision",
            "What is this item?",
            (
                "valid_semantic_edit", "invalid_unreadable_replacement", "invalid_source_not_visible",
                "invalid_source_still_visible", "invalid_bad_local_edit", "invalid_unrelated_change", "unclear",
            ),
            "valid_semantic_edit",
        ),
    ),
    "decision",
    _REMARKS,
)  # fmt: skip
EVIDENCE = TaskKind(
    "evidence",
    "Evidence",
    "Draw a box around everything that has to be read to answer the question, and say what each is to it.",
    (
        AskedField(
            STATUS, "How did it go?", (ANNOTATED, "needs_review", "not_visible", "uncertain"), ANNOTATED
        ),
    ),
    STATUS,
    (("evidence_units", "How many things have to be read"), ("notes", "Notes")),
    draws_boxes=True,
)  # fmt: skip

KINDS = {kind.name: kind for kind in (HARD_NEGATIVES, TEXT_REPLACEMENT, EVIDENCE)}


def kind_named(name: str) -> TaskKind:
    if name not in KINDS:
        raise SightlineError(f"unknown kind of task {name!r}; choose from {', '.join(KINDS)}")
    return KINDS[name]
