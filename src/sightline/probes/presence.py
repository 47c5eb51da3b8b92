"""Does a string stand in an image? As a whole transcription, or as a word within a longer one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable


def standing_alone(word: str) -> re.Pattern[str]:
    """Matches ``word`` (casefolded) where no letter, digit or underscore touches it."""
    return re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")


class Presence:
    """How often a casefolded string occurs among the texts of one image.

    By default a text counts only as a whole. With ``lines=True`` the texts are lines, and a string also counts wherever
    it stands alone within one: the line "QTY: 5.00" holds the word "5.00".
    """

    def __init__(self, words: Iterable[str], *, lines: bool = False) -> None:
        self._texts = [word.casefold() for word in words if word]
        self._whole = Counter(self._texts)
        self._lines = lines

    def count(self, word: str) -> int:
        if not self._lines:
            return self._whole[word]
        pattern = standing_alone(word)
        return sum(len(pattern.findall(text)) for text in self._texts)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.count(word) > 0


class Traces:
    """The casefolded strings that stand anywhere in the texts of one image: inside a word, or across two neighbours."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = " ".join(" ".join(texts).casefold().split())

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and text in self._texts
