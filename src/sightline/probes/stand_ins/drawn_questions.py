"""Drawn pages and open questions about them, whose answers and evidence are known because the page was drawn."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from PIL import Image

from sightline.core.probe import Box
from sightline.probes.regions import ANSWER
from sightline.probes.scenes.compose import CANVAS, Scene, draw, inside
from sightline.probes.scenes.page_designs import compose

LABEL = "field_label"
LEAST_LETTERS = 3
"""Shorter words are not named in a question."""
LONG_ANSWER = 3
"""Words of an answer that is several words long."""


@dataclass(frozen=True)
class PlacedWord:
    """A word of a page and its box in pixels."""

    text: str
    box: Box


@dataclass(frozen=True)
class DrawnQuestion:
    """A question, its answer, and the words that it is about, each with its role."""

    text: str
    answer: str
    evidence: tuple[tuple[PlacedWord, str], ...]


@dataclass(frozen=True)
class DrawnPage:
    """One page: 448 x 448 pixels."""

    seed: int
    scene: Scene

    @cached_property
    def image(self) -> Image.Image:
        return draw(self.scene, self.seed)

    @cached_property
    def _files(self) -> dict[str, bytes]:
        return {}

    def encoded(self, form: str) -> bytes:
        """The image file, JPEG or PNG."""
        if form not in self._files:
            self._files[form] = image_file(self.image, form)
        return self._files[form]

    @cached_property
    def words(self) -> tuple[PlacedWord, ...]:
        """Words that lie wholly on the page, in the order in which they were written."""
        placed = (PlacedWord(word.text, self.scene.box(word)) for word in self.scene.words)
        return tuple(word for word in placed if inside(word.box))

    def questions(self, count: int) -> list[DrawnQuestion]:
        """So many questions at most: about a number (of every other page a word), about a row of words, then any."""
        rng = random.Random(f"questions:{self.seed}")
        beside, rows = _beside(self.words), _rows(self.words)
        rng.shuffle(beside)
        rng.shuffle(rows)
        numeric = self.seed % 2 == 0
        wanted = [asked for asked in beside if any(char.isdigit() for char in asked.answer) == numeric]
        plain_rows = [asked for asked in rows if not any(char.isdigit() for char in asked.answer)]
        first = [*wanted[:1], *(rows if numeric else plain_rows or rows)[:1]]
        return [*first, *(asked for asked in beside if asked not in first)][:count]


def drawn_pages(first_seed: int, count: int, kinds: Sequence[str]) -> list[DrawnPage]:
    """Pages of these kinds in turn, each of which can be asked about; seeds that give no question are passed over."""
    pages: list[DrawnPage] = []
    seed = first_seed
    while len(pages) < count:
        scene = compose(seed, "development", kinds[len(pages) % len(kinds)])
        scene.noise = 0.0  # which no image file can compress
        page = DrawnPage(seed, scene)
        if len(page.questions(2)) == 2:
            pages.append(page)
        seed += 1
    return pages


def _beside(words: Sequence[PlacedWord]) -> list[DrawnQuestion]:
    """``What is the text right of "X"?`` for every word that can be named and has one."""
    return [
        DrawnQuestion(f'What is the text right of "{word.text}"?', line[0].text, ((line[0], ANSWER), (word, LABEL)))
        for word in _nameable(words)
        if (line := _right_of(word, words))
    ]


def _rows(words: Sequence[PlacedWord]) -> list[DrawnQuestion]:
    """``What is written on this page from the word "X" to the word "Y"?`` where that is three words."""
    named = set(_nameable(words))
    found = []
    for word in _nameable(words):
        line = [word, *_right_of(word, words)][:LONG_ANSWER]
        if len(line) == LONG_ANSWER and line[-1] in named:
            answer = " ".join(each.text for each in line)
            question = f'What is written on this page from the word "{word.text}" to the word "{line[-1].text}"?'
            found.append(DrawnQuestion(question, answer, tuple((each, ANSWER) for each in line)))
    return found


def _nameable(words: Sequence[PlacedWord]) -> list[PlacedWord]:
    """Words of some length without quotation marks that occur once, case aside."""
    seen = Counter(word.text.casefold() for word in words)
    return [
        word
        for word in words
        if len(word.text) >= LEAST_LETTERS and '"' not in word.text and seen[word.text.casefold()] == 1
    ]


def _right_of(word: PlacedWord, words: Sequence[PlacedWord]) -> list[PlacedWord]:
    """Words on the line of ``word`` that begin behind it, from left to right."""
    _, top, right, bottom = word.box
    line = [
        other
        for other in words
        if other.box[0] >= right - 1
        and min(bottom, other.box[3]) - max(top, other.box[1]) > 0.5 * min(bottom - top, other.box[3] - other.box[1])
    ]
    return sorted(line, key=lambda other: other.box[0])


def image_file(image: Image.Image, form: str) -> bytes:
    """An image as the content of a file, JPEG or PNG."""
    target = io.BytesIO()
    image.save(target, format=form)
    return target.getvalue()


def fraction_box(box: Box) -> Box:
    """A box of a page in fractions."""
    return (box[0] / CANVAS, box[1] / CANVAS, box[2] / CANVAS, box[3] / CANVAS)
