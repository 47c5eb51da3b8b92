"""Training questions about a scene: words that are there, near misses of them, and words that are nowhere."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from functools import cache
from typing import NamedTuple

from lab.scenes.compose import PixelBox, Scene, inside
from lab.scenes.lexicon import Lexicon, random_edit, split_of, vocabulary
from sightline.probes.hard_pairs import decoy_candidates, normalise_word

POSITIVE_SHARE, NEAR_MISS_SHARE = 0.5, 0.38
SHORTEST, LONGEST = 3, 18
MAX_SYMBOL_SHARE = 0.4
EVERYDAY_SHARE = 0.3


class Question(NamedTuple):
    """``box``: where the word stands that is asked for or nearly asked for; None for a word from elsewhere."""

    target: str
    answer: bool
    box: PixelBox | None


def ask(scene: Scene, rng: random.Random, count: int) -> list[Question]:
    """``count`` questions about ``scene``, half of them answered yes when there is a word to ask for."""
    texts = [normalise_word(word.text) for word in scene.words]
    taken = Counter(text.casefold() for text in texts)
    candidates = [
        (text, box)
        for text, word in zip(texts, scene.words, strict=True)
        if _askable(text) and taken[text.casefold()] == 1 and inside(box := scene.box(word))
    ]
    lexicon = Lexicon(scene.role)
    return [_question(rng, lexicon, candidates, taken) for _ in range(count)]


def _question(
    rng: random.Random, lexicon: Lexicon, candidates: list[tuple[str, PixelBox]], taken: Counter[str]
) -> Question:
    draw = rng.random()
    if candidates and draw < POSITIVE_SHARE + NEAR_MISS_SHARE:
        text, box = min(rng.choices(candidates, k=rng.randint(1, 3)), key=_area)
        if draw < POSITIVE_SHARE:
            return Question(text, True, box)
        decoy = near_miss(text, rng, taken)
        if decoy is not None:
            return Question(decoy, False, box)
    while True:
        text = normalise_word(lexicon.any(rng))
        if _askable(text) and text.casefold() not in taken:
            return Question(text, False, None)


def _area(candidate: tuple[str, PixelBox]) -> float:
    """Small words are asked for more often, as they are by the hard-pair builder."""
    x1, y1, x2, y2 = candidate[1]
    return (x2 - x1) * (y2 - y1)


def near_miss(text: str, rng: random.Random, taken: Counter[str]) -> str | None:
    """A string like ``text`` that is not in the image, for a question answered no.

    Everyday words that ``text`` nearly is come first, so that knowing a word is no reason to say yes; then protocol
    decoys, and for a third of the draws random edits, so that no fixed list of edits can be learned. None belongs to a
    held-out split: a string that training only ever denies would be denied there too.
    """
    if rng.random() < EVERYDAY_SHARE:
        words = [word for word in everyday_neighbours(text) if word.casefold() not in taken]
        if words:
            return rng.choice(words)
    if rng.random() < 0.65:
        decoys = [decoy for decoy in decoy_candidates(text, taken) if split_of(decoy) == "train"]
        if decoys:
            return rng.choice(decoys)
    for _ in range(10):
        decoy = random_edit(text, rng)
        if SHORTEST <= len(decoy) <= LONGEST + 1 and decoy.casefold() not in taken and split_of(decoy) == "train":
            return decoy
    return None


def everyday_neighbours(text: str) -> list[str]:
    """Everyday words of the training split one substitution, insertion or deletion from ``text``, in its case."""
    lower = text.lower()
    found = dict.fromkeys(word for form in _shortened(lower) for word in _by_shortened_form()[form] if word != lower)
    if text.isupper():
        return [word.upper() for word in found]
    return [word.capitalize() if text[0].isupper() else word for word in found]


@cache
def _by_shortened_form() -> defaultdict[str, list[str]]:
    """Each everyday word and its forms with one character left out -> the words that have that form."""
    forms: defaultdict[str, list[str]] = defaultdict(list)
    for word in vocabulary("train"):
        for form in _shortened(word):
            forms[form].append(word)
    return forms


def _shortened(text: str) -> set[str]:
    """The text, and the text without each of its characters: neighbours share at least one of these."""
    return {text} | {text[:place] + text[place + 1 :] for place in range(len(text))}


def _askable(text: str) -> bool:
    symbols = sum(not character.isalnum() for character in text)
    return SHORTEST <= len(text) <= LONGEST and symbols < len(text) and symbols <= MAX_SYMBOL_SHARE * len(text)
