"""Training questions about a scene: words that are there, near misses of them, and words that are nowhere."""

from __future__ import annotations

import random
import string
from collections import Counter
from typing import NamedTuple

from sightline.probes.decoys import decoy_candidates
from sightline.probes.hard_pairs import normalise_word
from sightline.probes.scenes.compose import PixelBox, Scene, inside
from sightline.probes.scenes.lexicon import Lexicon

POSITIVE_SHARE, NEAR_MISS_SHARE = 0.5, 0.38
SHORTEST, LONGEST = 3, 18
MAX_SYMBOL_SHARE = 0.4


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
    """A protocol decoy, or for a third of the draws a random edit, so that no fixed list of edits can be learned."""
    if rng.random() < 0.65:
        decoys = decoy_candidates(text, taken)
        if decoys:
            return rng.choice(decoys)
    for _ in range(10):
        decoy = _random_edit(text, rng)
        if SHORTEST <= len(decoy) <= LONGEST + 1 and decoy.casefold() not in taken:
            return decoy
    return None


def _random_edit(text: str, rng: random.Random) -> str:
    """One substitution, insertion, deletion or swap of neighbours."""
    place = rng.randrange(len(text))
    before, character, after = text[:place], text[place], text[place + 1 :]
    draw = rng.random()
    if draw < 0.55:
        return before + _like(character, rng) + after
    if draw < 0.7:
        return before + character + _like(character, rng) + after
    if draw < 0.85 or not after:
        return before + after
    return before + after[0] + character + after[1:]


def _like(character: str, rng: random.Random) -> str:
    """A random character of the same class."""
    for alphabet in (string.ascii_lowercase, string.ascii_uppercase, string.digits):
        if character in alphabet:
            return rng.choice(alphabet)
    return rng.choice("-./:,")


def _askable(text: str) -> bool:
    symbols = sum(not character.isalnum() for character in text)
    return SHORTEST <= len(text) <= LONGEST and symbols < len(text) and symbols <= MAX_SYMBOL_SHARE * len(text)
