"""Which words of an image may be asked for, and what stands against the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sightline.core.probe import Box
from sightline.probes.presence import Presence

if TYPE_CHECKING:
    from sightline.probes.hard_pairs import HardPairRules

REMEDIES = {
    "too short": "a smaller --min-length",
    "too long": "a larger --max-length",
    "too small": "a smaller --min-area",
    "too large": "a larger --max-area",
    "mostly symbols": "a larger --max-symbol-share",
    "repeated": "--no-unique",
}
"""Obstacle -> the option that lifts it. What is not here, no option lifts."""


class Candidate(NamedTuple):
    text: str
    box: Box
    area: float


def obstacles(text: str, box: Box, present: Presence, rules: HardPairRules) -> Iterator[str]:
    """Why a word may not be asked for, the dearest check last; nothing for a candidate."""
    x1, y1, x2, y2 = box
    if not (0.0 <= x1 < x2 <= 1.0 and 0.0 <= y1 < y2 <= 1.0):
        yield "outside the image"
    if not text:
        yield "without text"
        return
    if len(text) < rules.min_length:
        yield "too short"
    if len(text) > rules.max_length:
        yield "too long"
    symbols = sum(not char.isalnum() for char in text)
    if symbols == len(text):
        yield "without a letter or digit"
    elif symbols / len(text) > rules.max_symbol_share:
        yield "mostly symbols"
    if _area(box) < rules.min_area:
        yield "too small"
    if _area(box) > rules.max_area:
        yield "too large"
    if rules.unique and present.count(text.casefold()) != 1:
        yield "repeated"


def candidates(words: Sequence[tuple[str, Box]], present: Presence, rules: HardPairRules) -> list[Candidate]:
    """Words that may be asked for, smallest box first; equal areas stay in annotation order."""
    found = [
        Candidate(text, box, _area(box))
        for text, box in words
        if next(obstacles(text, box, present, rules), None) is None
    ]
    return sorted(found, key=lambda candidate: candidate.area)


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


@dataclass
class Shortage:
    """The images without a candidate, and what stood against their words."""

    images: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Obstacle -> words that meet it; a word may meet several."""
    remedied: Counter[str] = field(default_factory=Counter)
    """Obstacle -> images in which it is all that stands against some word."""

    def add(self, words: Sequence[tuple[str, Box]], present: Presence, rules: HardPairRules) -> None:
        """Counts one image."""
        met = [tuple(obstacles(text, box, present, rules)) for text, box in words]
        self.images += 1
        self.reasons.update(reason for reasons in met for reason in reasons)
        alone = (reasons[0] for reasons in met if len(reasons) == 1)
        self.remedied.update(dict.fromkeys(reason for reason in alone if reason in REMEDIES).keys())

    def in_words(self) -> str:
        """The two largest obstacles, and the option that would help most images; empty where none lacks a word."""
        reasons = ", ".join(
            f"{count} word{'s' * (count > 1)} {reason}" for reason, count in self.reasons.most_common(2)
        )
        remedy = [
            f"{REMEDIES[reason]} would give one to {images} of the {self.images} images"
            for reason, images in self.remedied.most_common(1)
        ]
        return "; ".join([reasons, *remedy])
