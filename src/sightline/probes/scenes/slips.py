"""Single slips of spelling."""

from __future__ import annotations

import random
import string


def random_edit(text: str, rng: random.Random) -> str:
    """One substitution, insertion, deletion or swap of neighbours; new characters are of the old one's class."""
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
    for alphabet in (string.ascii_lowercase, string.ascii_uppercase, string.digits):
        if character in alphabet:
            return rng.choice(alphabet)
    return rng.choice("-./:,")
