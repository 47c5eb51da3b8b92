"""Where an answer stands among the words that an OCR engine read, and what stands beside it on its line."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from sightline.core.probe import Box

Match = Literal["equal", "contained", "similar"]

MOST_WORDS = 12
"""Longest answer that is looked for, in words."""
NEIGHBOURS = 3
"""Words of context on either side of a word of the answer."""
LEAST_CONTAINED = 4
"""Shorter answers must equal the words: "10" stands in "2010" too."""
LEAST_SIMILARITY = 0.5
"""Jaccard index of the two sets of words below which an answer counts as not found."""
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Span:
    """``count`` words from ``first`` on, and in what way they are the answer."""

    first: int
    count: int
    match: Match

    @property
    def words(self) -> range:
        return range(self.first, self.first + self.count)


def plain(text: str) -> str:
    """Lower case, without ASCII punctuation, blanks collapsed: how answers and words are compared."""
    return " ".join(text.lower().translate(_PUNCTUATION).split())


def span_at(words: Sequence[str], first: int, answer: str) -> Span:
    """The span from a known first word on: the shortest that equals or contains the answer, else the most similar."""
    wanted = plain(answer)
    best, best_similarity = 1, -1.0
    for count, text in _growing([plain(word) for word in words], first):
        if text == wanted:
            return Span(first, count, "equal")
        if wanted and wanted in text:
            return Span(first, count, "contained")
        similarity = _jaccard(text, wanted)
        if similarity > best_similarity:
            best, best_similarity = count, similarity
    return Span(first, best, "similar")


def find_span(words: Sequence[str], answers: Sequence[str]) -> Span | None:
    """Where one of the accepted answers stands, or None.

    Words that equal an answer go before words that contain one, and those before the most similar; among equals the
    answer that is named first, then what stands first in ``words`` (reading order), then the shortest.
    """
    wanted = [text for text in dict.fromkeys(map(plain, answers)) if text]
    said = [plain(word) for word in words]
    spans = [(first, count, text) for first in range(len(said)) for count, text in _growing(said, first)]
    for answer in wanted:
        for first, count, text in spans:
            if text == answer:
                return Span(first, count, "equal")
    for answer in wanted:
        inside = [(count, first) for first, count, text in spans if len(answer) >= LEAST_CONTAINED and answer in text]
        if inside:
            count, first = min(inside)
            return Span(first, count, "contained")
    similar = [
        (-_jaccard(text, answer), order, first, count)
        for order, answer in enumerate(wanted)
        for first, count, text in spans
    ]
    if not similar:
        return None
    similarity, _, first, count = min(similar)
    return Span(first, count, "similar") if -similarity >= LEAST_SIMILARITY else None


def line_context(boxes: Sequence[Box], span: Sequence[int], neighbours: int = NEIGHBOURS) -> list[int]:
    """Words beside those of the span, from top to bottom and left to right.

    On the line of a word are those whose vertical centre is at most max(8, 3/4 of its height) away from its own; of
    these, ``neighbours`` on either side are its context. Boxes are in pixels.
    """
    context: set[int] = set()
    for word in span:
        reach = max(8.0, 0.75 * (boxes[word][3] - boxes[word][1]))
        line = [other for other in range(len(boxes)) if abs(_middle(boxes[other]) - _middle(boxes[word])) <= reach]
        line.sort(key=lambda other: boxes[other][0])
        place = line.index(word)
        context.update(line[max(0, place - neighbours) : place + neighbours + 1])
    return sorted(context - set(span), key=lambda word: (_middle(boxes[word]), boxes[word][0]))


def _growing(words: Sequence[str], first: int) -> Iterator[tuple[int, str]]:
    """(count, text) of one, two, ... of these plain words from the first on."""
    text = ""
    for count, word in enumerate(words[first : first + MOST_WORDS], start=1):
        text = f"{text} {word}" if text and word else text or word
        yield count, text


def _jaccard(text: str, other: str) -> float:
    a, b = set(text.split()), set(other.split())
    return len(a & b) / len(a | b) if a | b else 0.0


def _middle(box: Box) -> float:
    return (box[1] + box[3]) / 2.0
