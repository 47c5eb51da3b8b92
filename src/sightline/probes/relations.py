"""How two things in a caption are related: "A photo of a dog above a bench" -> dog, above, bench."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Family = Literal["left_right", "vertical", "topology", "proximity", "depth", "interaction"]

_SPOKEN: dict[Family, tuple[tuple[str, ...], ...]] = {
    "left_right": (
        ("to the left of", "on the left of", "at the left of", "on the left side of", "left of"),
        ("to the right of", "on the right of", "at the right of", "on the right side of", "right of"),
    ),
    "vertical": (
        ("above", "over"),
        ("below", "under", "underneath", "beneath"),
        ("on top of", "at the top of"),
        ("at the bottom of",),
    ),
    "topology": (
        ("inside", "inside of", "within", "in"),
        ("outside", "outside of"),
        ("on",),
        ("around", "surrounding"),
        ("containing",),
        ("covering",),
        ("touching",),
        ("attached to",),
        ("part of",),
        ("between",),
    ),
    "proximity": (
        ("next to", "beside", "alongside", "adjacent to"),
        ("near", "close to", "by"),
        ("far from", "far away from"),
    ),
    "depth": (("in front of",), ("behind", "in back of"), ("beyond",)),
    "interaction": (
        ("holding",), ("carrying",), ("riding",), ("wearing",), ("eating",), ("drinking",), ("using",), ("watching",),
        ("looking at",), ("facing",), ("pulling",), ("pushing",), ("hanging from",), ("hanging on",), ("leaning on",),
        ("sitting on",), ("sitting in",), ("standing on",), ("lying on",), ("walking on",), ("parked on",),
    ),
}  # fmt: skip
"""Family -> groups of phrases that mean the same; a question uses the first of its group."""

PHRASES: dict[str, tuple[str, Family]] = {
    phrase: (group[0], family) for family, groups in _SPOKEN.items() for group in groups for phrase in group
}
"""Phrase in a caption -> phrase in the question, and its family."""

_SIDES = {"left", "right", "top", "bottom"}
"""A bench "on the left" is a bench and a side, not two things."""
_PREFIX = re.compile(r"^(?:an?|the)\s+(?:photo|picture|image)\s+of\s+", re.IGNORECASE)
_ARTICLE = re.compile(r"^(?:an?|the|some)\s+", re.IGNORECASE)
# Longest first, so that "on top of" is not taken for "on".
_RELATION = re.compile(
    r"\s+(?:(?:is|are)\s+)?(" + "|".join(sorted(PHRASES, key=lambda phrase: (-len(phrase), phrase))) + r")\s+",
    re.IGNORECASE,
)


class Relation(NamedTuple):
    subject: str
    phrase: str
    object: str
    family: Family

    def __str__(self) -> str:
        return f"the {self.subject} {self.phrase} the {self.object}"

    @property
    def question(self) -> str:
        return f"Is {self}?"


def parse_relation(caption: str) -> Relation | None:
    """The relation of a caption, or None where it has none between two things. The first phrase in it counts."""
    text = _PREFIX.sub("", " ".join(caption.split()).rstrip(". "))
    found = _RELATION.search(text)
    if found is None:
        return None
    subject, thing = _thing(text[: found.start()]), _thing(text[found.end() :])
    if not subject or not thing or thing in _SIDES:
        return None
    phrase, family = PHRASES[found[1].lower()]
    return Relation(subject, phrase, thing, family)


def _thing(text: str) -> str:
    return _ARTICLE.sub("", text.strip())
