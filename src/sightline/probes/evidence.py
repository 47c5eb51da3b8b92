"""Where an answer stands among the words that an OCR engine read, and what stands beside it on its line."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from sightline.core.probe import Box, Probe
from sightline.probes.regions import ANSWER, CONTEXT, ImageRegions

Match = Literal["equal", "contained", "similar"]

MOST_WORDS = 12
"""Longest answer that is looked for, in words."""
NEIGHBOURS = 3
"""Words of context on either side of a word of the answer."""
LEAST_CONTAINED = 4
"""Shorter answers must equal the words: "10" stands in "2010" too."""
LEAST_SIMILARITY = 0.5
"""Jaccard index of the two sets of words below which an answer counts as not found."""
_BEST_FIRST: tuple[Match, ...] = ("equal", "contained", "similar")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Span:
    """``count`` words from ``first`` on, and in what way they are the answer."""

    first: int
    count: int
    match: Match
    similarity: float = 1.0
    """Jaccard index of the words and those of the answer, where they are only similar."""

    @property
    def words(self) -> range:
        return range(self.first, self.first + self.count)


def plain(text: str) -> str:
    """Lower case, without ASCII punctuation, blanks collapsed: how answers and words are compared."""
    return " ".join(text.lower().translate(_PUNCTUATION).split())


def find_span(words: Sequence[str], answers: Sequence[str]) -> Span | None:
    """Where one of the accepted answers stands, or None.

    From every word on, as many words are taken as equal an answer or contain it, or else are most similar to it. The
    best of these spans is taken: equal before contained before similar, then the answer that is named first, then the
    shortest span, then what stands first.
    """
    said = [plain(word) for word in words]
    found = []
    for order, answer in enumerate(text for text in dict.fromkeys(map(plain, answers)) if text):
        for first in range(len(said)):
            span = span_at(said, first, answer)
            if span is not None and not (span.match == "contained" and len(answer) < LEAST_CONTAINED):
                key = (_BEST_FIRST.index(span.match), -span.similarity, order, span.count, first)
                found.append((key, span))
    return min(found, key=lambda each: each[0])[1] if found else None


def span_at(words: Sequence[str], first: int, answer: str) -> Span | None:
    """The span from one word on; words and answer are ``plain``. None where the two have too little in common."""
    wanted = set(answer.split())
    best: Span | None = None
    text = ""
    for count, word in enumerate(words[first : first + MOST_WORDS], start=1):
        text = f"{text} {word}" if text and word else text or word
        if text == answer:
            return Span(first, count, "equal")
        if answer in text:
            return Span(first, count, "contained")
        found = set(text.split())
        similarity = len(found & wanted) / len(found | wanted) if wanted.intersection(word.split()) else 0.0
        if similarity >= LEAST_SIMILARITY and (best is None or similarity > best.similarity):
            best = Span(first, count, "similar", similarity)
    return best


def line_context(boxes: Sequence[Box], span: Sequence[int]) -> list[int]:
    """Words beside those of the span, from top to bottom and left to right.

    On the line of a word are those whose vertical centre is at most max(8, 3/4 of its height) away from its own; of
    these, ``NEIGHBOURS`` on either side are its context. Boxes are in pixels.
    """
    context: set[int] = set()
    for word in span:
        reach = max(8.0, 0.75 * (boxes[word][3] - boxes[word][1]))
        line = [other for other in range(len(boxes)) if abs(_middle(boxes[other]) - _middle(boxes[word])) <= reach]
        line.sort(key=lambda other: boxes[other][0])
        place = line.index(word)
        context.update(line[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1])
    return sorted(context - set(span), key=lambda word: (_middle(boxes[word]), boxes[word][0]))


def _middle(box: Box) -> float:
    return (box[1] + box[3]) / 2.0


# Evidence for open questions: regions with roles, from another question file or from the words of an OCR engine.
#
# They are what coverage is audited against. No selector sees them.

SizeOf = Callable[[str], tuple[int, int]]


@dataclass(frozen=True)
class Evidence:
    """Regions in fractions of the image, and the role of each."""

    regions: tuple[Box, ...]
    roles: tuple[str, ...]


def with_evidence(probes: Iterable[Probe], found: Mapping[str, Evidence]) -> tuple[Probe, ...]:
    """The probes with the evidence that was found for their ids; the others as they are."""
    return tuple(
        replace(probe, regions=found[probe.id].regions, roles=found[probe.id].roles) if probe.id in found else probe
        for probe in probes
    )


def evidence_of_questions(probes: Iterable[Probe], others: Sequence[Probe]) -> dict[str, Evidence]:
    """What the same questions have in another file: those with the same id, else those of the same image and text."""
    by_id = {other.id: other for other in others if other.regions}
    by_text = {(other.image_id, other.question): other for other in others if other.regions}
    found = {}
    for probe in probes:
        other = by_id.get(probe.id) or by_text.get((probe.image_id, probe.question))
        if other is not None:
            found[probe.id] = Evidence(other.regions, other.roles or (ANSWER,) * len(other.regions))
    return found


def evidence_of_words(
    probes: Iterable[Probe], records: Sequence[ImageRegions], size_of: SizeOf | None = None
) -> dict[str, Evidence]:
    """A region for every word of the answer, where it was found among the words of its image.

    Parameters
    ----------
    size_of: width and height of an image in pixels. With it, words beside the answer on its line become regions too.
    """
    by_name: dict[str, ImageRegions] = {}
    for record in records:  # under the names by which a probe may know their image; the first that has one keeps it
        for name in (record.image, record.image_id, PurePosixPath(record.image).stem):
            by_name.setdefault(name, record)
    found = {}
    for probe in probes:
        names = (probe.image, PurePosixPath(probe.image).stem, probe.image_id)
        words = next((by_name[name].words for name in names if name in by_name), ())
        span = find_span([word.text for word in words], probe.answers)
        if span is None:
            continue
        boxes = [word.box for word in words]
        context: list[int] = []
        if size_of is not None:
            width, height = size_of(probe.image)
            pixels = [(x1 * width, y1 * height, x2 * width, y2 * height) for x1, y1, x2, y2 in boxes]
            context = line_context(pixels, span.words)
        roles = (ANSWER,) * span.count + (CONTEXT,) * len(context)
        found[probe.id] = Evidence(tuple(boxes[place] for place in (*span.words, *context)), roles)
    return found
