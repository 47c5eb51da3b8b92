"""Open questions about a scene: which text stands beside, below or with a word; which of two values is larger.

Only questions with one right answer are asked: the word they name occurs once on the page, whatever its case, and
exactly one text can be meant. What a question names and what it asks for are strings of the scene's own split.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from lab.scenes.compose import DrawnWord, LabelledValue, PixelBox, Scene, inside
from lab.scenes.lexicon import split_of
from sightline.probes.hard_pairs import normalise_word

TEMPLATES = {
    "right_of": 'What is the text right of "{}"?',
    "left_of": 'What is the text left of "{}"?',
    "below": 'What is the text below "{}"?',
    "value_beside": 'What is the value beside "{}"?',
    "total": "What is the total?",
    "larger_of": 'Which is larger, the value beside "{}" or the value beside "{}"?',
}
"""Kind of question -> its wording, with a place for each word it names."""
NEIGHBOURS = ("right_of", "left_of", "below")
"""Kinds that ask where words stand; the others ask about labelled values."""
TOTAL = "total"
SHORTEST_ANCHOR, LONGEST_ANCHOR = 3, 14
LONGEST_NAMED = 10
"""Characters of each of two words that one question names."""
LONGEST_ANSWER = 16
CLEARLY_LARGER = 1.5
"""Two values are compared where one is at least so many times the other."""
COMPARISONS = 6
"""Pairs of values that are asked about in one scene, at most."""
IN_LINE, MAYBE_IN_LINE = 0.6, 0.2
"""Shared extent of two words, as a fraction of the smaller: certainly in one line or column; possibly."""

_AMOUNT = re.compile(r"\$?(0|[1-9]\d{0,2}(,\d{3})+|[1-9]\d*)(\.\d+)?")


class OpenQuestion(NamedTuple):
    """A question whose answer is a text of the scene."""

    kind: str
    text: str
    target: str
    """The part of ``text`` that names what to look for."""
    answer: str
    regions: tuple[PixelBox, ...]
    """The answer first, then what else has to be seen, in pixels."""
    roles: tuple[str, ...]
    """One per region: ``answer_value``, ``comparison_anchor`` (the smaller value) or ``field_label``."""
    decoy: str
    """Another text of the scene that could be the answer."""

    def boxes(self, *roles: str) -> list[PixelBox]:
        """The regions that play one of ``roles``."""
        return [box for box, role in zip(self.regions, self.roles, strict=True) if role in roles]


class Item(NamedTuple):
    """A word as it is asked for, and where it stands."""

    text: str
    box: PixelBox
    upright: PixelBox
    """The box before the scene was turned, in which lines and columns are told."""


class ScenePage:
    """The words of a scene with their boxes, and which of them a question may name or ask for."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.items = [self.item(word) for word in scene.words]
        self.count = Counter(item.text.casefold() for item in self.items)

    def item(self, word: DrawnWord) -> Item:
        return Item(normalise_word(word.text), self.scene.box(word), self.scene.upright_box(word))

    def namable(self, item: Item, longest: int = LONGEST_ANCHOR) -> bool:
        text = item.text
        plain = sum(character.isalnum() for character in text)
        return (
            SHORTEST_ANCHOR <= len(text) <= longest
            and plain >= 0.6 * len(text)
            and '"' not in text
            and self._own(item)
            and self.count[text.casefold()] == 1
        )

    def answerable(self, item: Item) -> bool:
        printable = all(33 <= ord(character) < 127 for character in item.text)
        return 1 <= len(item.text) <= LONGEST_ANSWER and printable and self._own(item)

    def _own(self, item: Item) -> bool:
        return inside(item.box) and split_of(item.text) == self.scene.role


def open_questions(scene: Scene, rng: random.Random, anchors: int = 12) -> list[OpenQuestion]:
    """Open questions that ``scene`` answers, in random order: all about its values, those about ``anchors`` words."""
    page = ScenePage(scene)
    found = [*_neighbours(page, rng, anchors), *_values(page, rng), *_comparisons(page, rng)]
    rng.shuffle(found)
    return found


def choose(questions: list[OpenQuestion], rng: random.Random, count: int) -> list[OpenQuestion]:
    """``count`` of them, kinds in turn from a random one on: rare kinds are not drowned by common ones."""
    kinds = list(dict.fromkeys(question.kind for question in questions))
    rng.shuffle(kinds)
    queues = [[question for question in questions if question.kind == kind] for kind in kinds]
    chosen: list[OpenQuestion] = []
    while queues and len(chosen) < count:
        queue = queues.pop(0)
        chosen.append(queue.pop())
        if queue:
            queues.append(queue)
    return chosen


def amount(text: str) -> float | None:
    """The number that a price or a plain number says; None for anything else, negative amounts included."""
    return float(text.lstrip("$").replace(",", "")) if _AMOUNT.fullmatch(text) else None


def _neighbours(page: ScenePage, rng: random.Random, anchors: int) -> Iterator[OpenQuestion]:
    namable = [item for item in page.items if page.namable(item)]
    answers = [item for item in page.items if page.answerable(item)]
    places: dict[str, Callable[[Item, list[Item]], Item | None]] = {
        "right_of": right_neighbour,
        "left_of": left_neighbour,
        "below": lower_neighbour,
    }
    for anchor in rng.sample(namable, min(anchors, len(namable))):
        for kind, find in places.items():
            item = find(anchor, page.items)
            if item is not None and page.answerable(item):
                yield _question(kind, (anchor,), item, _other(answers, (anchor, item), rng))


def _values(page: ScenePage, rng: random.Random) -> Iterator[OpenQuestion]:
    pairs = [(page.item(pair.label), page.item(pair.value)) for pair in page.scene.pairs]
    values = [value for _, value in pairs if page.answerable(value)]
    for label, value in pairs:
        if page.namable(label) and page.answerable(value):
            yield _question("value_beside", (label,), value, _other(values, (value,), rng))
    total = page.scene.total
    if total is None or sum(count for text, count in page.count.items() if text == TOTAL) != 1:
        return
    label, value = page.item(total.label), page.item(total.value)
    if inside(label.box) and page.answerable(value):
        yield _question("total", (label,), value, _other(values, (value,), rng))


def _comparisons(page: ScenePage, rng: random.Random) -> Iterator[OpenQuestion]:
    """The answer is the larger value as it is spelled: knowing the question is not half of knowing the answer."""

    def usable(pair: LabelledValue) -> bool:
        label, value = page.item(pair.label), page.item(pair.value)
        return page.namable(label, LONGEST_NAMED) and page.answerable(value) and amount(value.text) is not None

    asked = list(combinations(filter(usable, page.scene.pairs), 2))
    for both in rng.sample(asked, min(COMPARISONS, len(asked))):
        labels = [page.item(pair.label) for pair in rng.sample(both, 2)]
        smaller, larger = sorted((page.item(pair.value) for pair in both), key=lambda item: amount(item.text) or 0.0)
        if (amount(larger.text) or 0.0) >= CLEARLY_LARGER * (amount(smaller.text) or 0.0) > 0:
            yield _question("larger_of", tuple(labels), larger, smaller)


def _question(kind: str, anchors: tuple[Item, ...], answer: Item, other: Item | None) -> OpenQuestion:
    """``other``: what else the answer might have been; of a comparison the smaller value, which has to be seen too."""
    names = [anchor.text for anchor in anchors]
    text = TEMPLATES[kind].format(*names)
    target = TOTAL if kind == "total" else text[text.index(names[0]) : text.rindex(names[-1]) + len(names[-1])]
    compared = (other,) if kind == "larger_of" and other is not None else ()
    regions = (answer, *compared, *anchors)
    roles = ("answer_value", *("comparison_anchor" for _ in compared), *("field_label" for _ in anchors))
    decoy = other.text if other is not None else ""
    return OpenQuestion(kind, text, target, answer.text, tuple(item.box for item in regions), roles, decoy)


def _other(items: list[Item], known: tuple[Item, ...], rng: random.Random) -> Item | None:
    """One of ``items`` that says something else than those already known."""
    taken = {item.text.casefold() for item in known}
    others = [item for item in items if item.text.casefold() not in taken]
    return rng.choice(others) if others else None


def right_neighbour(anchor: Item, items: list[Item]) -> Item | None:
    """The next word of the line, where nothing else could be meant."""
    return _next(anchor, items, 0, 1)


def left_neighbour(anchor: Item, items: list[Item]) -> Item | None:
    return _next(anchor, items, 0, -1)


def lower_neighbour(anchor: Item, items: list[Item]) -> Item | None:
    """The word under it, at most two heights away."""
    height = anchor.upright[3] - anchor.upright[1]
    found = _next(anchor, items, 1, 1)
    return found if found is not None and found.upright[1] - anchor.upright[3] < 2 * height else None


def _next(anchor: Item, items: list[Item], axis: int, direction: int) -> Item | None:
    """The nearest word along ``axis`` (0: x, 1: y).

    None where there is no such word, where it stands only half in line, or where another one begins before it ends.
    """
    here = anchor.upright
    start, end = here[axis], here[axis + 2]
    ahead = [
        item
        for item in items
        if item is not anchor
        and (item.upright[axis] >= end - 3 if direction > 0 else item.upright[axis + 2] <= start + 3)
        and _shared(here, item.upright, 1 - axis) > MAYBE_IN_LINE
    ]
    if not ahead:
        return None

    def distance(item: Item) -> float:
        return item.upright[axis] - end if direction > 0 else start - item.upright[axis + 2]

    nearest = min(ahead, key=distance)
    reach = distance(nearest) + nearest.upright[axis + 2] - nearest.upright[axis] - 3
    alone = sum(distance(item) < reach for item in ahead) == 1
    return nearest if alone and _shared(here, nearest.upright, 1 - axis) > IN_LINE else None


def _shared(one: PixelBox, two: PixelBox, axis: int) -> float:
    """Common extent along ``axis``, as a fraction of the smaller of both."""
    common = min(one[axis + 2], two[axis + 2]) - max(one[axis], two[axis])
    return common / max(1.0, min(one[axis + 2] - one[axis], two[axis + 2] - two[axis]))
