"""Equal to an accepted answer, or holding one, but for case, punctuation and blanks."""

from __future__ import annotations

import string
from collections.abc import Iterable

_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def without_punctuation(text: str) -> str:
    """Lower case, ASCII punctuation deleted, blanks collapsed; empty for a text of punctuation alone."""
    return " ".join(text.lower().translate(_WITHOUT_PUNCTUATION).split())


def normalised(text: str) -> str:
    """``without_punctuation``, unless nothing but punctuation is there: then that is the text, and "+" is not "-"."""
    return without_punctuation(text) or " ".join(text.lower().split())


def exact(answer: str, accepted: Iterable[str]) -> bool:
    """Whether the answer equals an accepted one, both ``normalised``."""
    return normalised(answer) in {normalised(each) for each in accepted}


def contains(answer: str, accepted: Iterable[str]) -> bool:
    """Whether an accepted answer stands somewhere in the answer, both ``normalised``.

    By characters, not by words: "art" stands in "party". An empty accepted answer stands in an empty answer alone.
    """
    said = normalised(answer)
    return any(each in said if each else not said for each in map(normalised, accepted))
