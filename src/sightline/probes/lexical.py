"""Text normalisers, edit distance and edit classes: how close is a decoy to its source, and to everything else?"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from itertools import zip_longest

from sightline.core.edit_distance import edit_distance as edit_distance


def _alphanumeric(text: str) -> str:
    return "".join(char for char in text if char.isalnum())


def nfkc_casefold(text: str) -> str:
    return unicodedata.normalize("NFKC", text.strip()).casefold()


def nfkc_casefold_alnum(text: str) -> str:
    return _alphanumeric(nfkc_casefold(text))


def _ascii_fold_alnum(text: str) -> str:
    folded = unicodedata.normalize("NFKD", text.strip()).encode("ascii", "ignore").decode("ascii")
    return _alphanumeric(folded.casefold())


NORMALISERS: dict[str, Callable[[str], str]] = {
    "raw_trim": str.strip,
    "nfc": lambda text: unicodedata.normalize("NFC", text.strip()),
    "nfkc": lambda text: unicodedata.normalize("NFKC", text.strip()),
    "nfkc_casefold": nfkc_casefold,
    "nfkc_casefold_nospace": lambda text: "".join(nfkc_casefold(text).split()),
    "nfkc_casefold_alnum": nfkc_casefold_alnum,
    "ascii_fold_alnum": _ascii_fold_alnum,
}
"""From strict to lenient; two strings that agree under one of them may look the same to a reader."""


def edit_type(source: str, target: str) -> str:
    """The kind of edit between two normalised strings."""
    distance = edit_distance(source, target)
    if distance == 0:
        return "identical"
    if distance > 1:
        return "multi_edit_or_confusable_sequence"
    longer = len(source) - len(target)
    return {0: "single_substitution", 1: "single_deletion", -1: "single_insertion"}.get(longer, "single_edit_other")


def changed_char_class(source: str, target: str) -> str:
    """Classes of the characters that differ position by position, joined by ``+``; a missing one has no class."""
    changed = {char for pair in zip_longest(source, target) if pair[0] != pair[1] for char in pair if char is not None}
    return "+".join(sorted({_char_class(char) for char in changed}))


def _is_punctuation(char: str) -> bool:
    return unicodedata.category(char).startswith("P")


def _char_class(char: str) -> str:
    if char.isalpha():
        return "letter"
    if char.isdigit():
        return "digit"
    if _is_punctuation(char):
        return "punctuation"
    return "other" if char.isascii() else "non_ascii"


def shape(text: str) -> str:
    """Which of letters, digits, punctuation and non-ASCII characters a string holds, joined by ``+``."""
    parts = {
        "alpha": any(char.isalpha() for char in text),
        "digit": any(char.isdigit() for char in text),
        "punct": any(_is_punctuation(char) for char in text),
        "non_ascii": not text.isascii(),
    }
    return "+".join(name for name, present in parts.items() if present) or "other"
