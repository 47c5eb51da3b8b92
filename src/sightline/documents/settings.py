"""What `documents.toml` says: how sure a reading has to be, what fields look like, how they are asked for."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

from sightline.errors import SightlineError

Wording = Literal["place", "field"]
"""``place``: by where the value stands; ``field``: by what it is."""

_DATA: dict[str, Any] = tomllib.loads(files("sightline.documents").joinpath("documents.toml").read_text("utf-8"))
READING: dict[str, float] = _DATA["reading"]
AUDIT: dict[str, Any] = _DATA["audit"]
WORDINGS: dict[str, dict[str, str]] = _DATA["wordings"]
KINDS = ("total", "amount", "date", "identifier", "name", "table_cell", "text")
"""Kinds of fields, in the order in which a page's questions are drawn from them."""
TEXT = "text"
"""A text without a label that says what it is."""


def _pattern(text: str, blank: str = r"\s*") -> re.Pattern[str]:
    """A pattern in plain words: its blanks, those in square brackets aside, match ``blank``."""
    return re.compile(re.sub(r"\[[^\]]*\]| ", lambda met: blank if met[0] == " " else met[0], text), re.IGNORECASE)


VALUES = {kind: _pattern("|".join(f"(?:{text})" for text in texts)) for kind, texts in _DATA["values"].items()}
"""Kind -> what its values look like."""


@dataclass(frozen=True)
class KnownLabel:
    """What is known of a label: the kind of its value, and what an invoice reader calls it."""

    kind: str
    called: str


_LABELS = tuple(
    (_pattern("|".join(f"(?:{label})" for label in field["labels"]), r"[\s.:()-]*"),
     KnownLabel(field["kind"], field["called"]))
    for field in _DATA["field"]
)  # fmt: skip


@cache
def known_label(text: str) -> KnownLabel | None:
    """What a text is the label of, if it is one that is known; marks around it and a unit in brackets aside."""
    bare = re.sub(r"\s*[(\[][^()\[\]]{1,5}[)\]]\s*$", "", text.strip(LABEL_MARKS)).strip(LABEL_MARKS)
    return next((known for pattern, known in _LABELS if pattern.fullmatch(bare)), None) if bare else None


LABEL_MARKS = " :.-=*#"
"""What may stand around a label and is no part of it."""


def kind_of_value(text: str) -> str:
    """The kind of a value by its looks alone; ``text`` for one that looks like nothing in particular."""
    return next((kind for kind, pattern in VALUES.items() if pattern.fullmatch(text.strip())), TEXT)


def check_wording(wording: str) -> None:
    """Refuses a wording that does not exist."""
    if wording not in get_args(Wording):
        raise SightlineError(f"unknown wording {wording!r}; known: {', '.join(get_args(Wording))}")
