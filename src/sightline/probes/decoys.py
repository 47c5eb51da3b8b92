"""Near misses of a word: look-alike substitutions, the next character, deletions; in a fixed order."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Literal

from sightline.errors import SightlineError

Version = Literal["development-v1", "confirmation-v2", "strict-v3"]
"""The paper's two constructions, byte for byte; and ours, for texts that are lines.

``strict-v3`` differs from ``confirmation-v2`` in two ways: what is asked for has no space at its ends ("CASH :" becomes
"CASH", not "CASH "), and a decoy is ruled out wherever it stands within a text of the image, its own source included
("ILL TO" within "BILL TO").
"""

CONFUSABLE: dict[str, tuple[str, ...]] = {
    "0": ("O", "8", "6"), "1": ("I", "l", "7"), "2": ("Z", "3"), "3": ("8", "5"), "4": ("A", "9"), "5": ("S", "6"),
    "6": ("8", "5"), "7": ("1", "T"), "8": ("B", "3", "0"), "9": ("8", "4"), "a": ("o", "e", "u"),
    "b": ("h", "d", "8"), "c": ("e", "o"), "d": ("b", "cl"), "e": ("c", "a", "o"), "f": ("t", "l"), "g": ("q", "9"),
    "h": ("b", "n"), "i": ("l", "1"), "j": ("i",), "k": ("h",), "l": ("1", "I", "i"), "m": ("rn", "n"),
    "n": ("h", "m"), "o": ("0", "a", "e"), "p": ("b", "q"), "q": ("g", "p"), "r": ("n",), "s": ("5", "S"),
    "t": ("f", "l"), "u": ("v", "n"), "v": ("u", "y"), "w": ("vv", "m"), "x": ("k",), "y": ("v",), "z": ("2", "s"),
}  # fmt: skip
"""Replacements per lower-case character, in the order in which they are tried."""

SHORTEST_SHORTENED = 4
"""Words with fewer characters are never shortened."""


def decoy_candidates(text: str, taken: Container[str], version: Version = "confirmation-v2") -> list[str]:
    """All decoys of ``text`` whose casefold is not in ``taken`` (the casefolded words of the image), without repeats.

    Substitutions come first, position by position (look-alikes in table order, then the next character of the
    alphabet), then deletions of one alphanumeric character.
    """
    made = dict.fromkeys(decoy for decoy in _edits(text, version) if decoy.casefold() not in taken)
    made.pop(text, None)
    return list(made)


def _edits(text: str, version: Version) -> Iterator[str]:
    for position, char in enumerate(text):
        for replacement in _replacements(char, text, version):
            yield text[:position] + replacement + text[position + 1 :]
    if len(text) >= SHORTEST_SHORTENED:
        for position, char in enumerate(text):
            if char.isalnum():
                yield text[:position] + text[position + 1 :]


def _replacements(char: str, word: str, version: Version) -> list[str]:
    lower = char.lower()
    found = list(CONFUSABLE.get(lower, ()))
    # The first version shifted any alphabet, which turns some letters into unassigned or combining code points.
    if version == "development-v1" or char.isascii():
        found += _shifted(char, lower, word)
    return [replacement.upper() for replacement in found] if char.isupper() else found


def _shifted(char: str, lower: str, word: str) -> list[str]:
    """The next letter (z -> a) or digit (9 -> 0); none for other characters."""
    try:
        if char.isalpha():
            return ["a" if lower == "z" else chr(ord(lower) + 1)]
        if char.isdigit():
            return [str((int(char) + 1) % 10)]
    except (TypeError, ValueError):
        raise SightlineError(
            f"word {word!r}: construction development-v1 has no character after {char!r}; use --version confirmation-v2"
        ) from None
    return []
