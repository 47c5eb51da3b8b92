"""The strings that stand in a scene, split so that no string of one split is ever drawn in another."""

from __future__ import annotations

import random
import string
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

from sightline.probes.hard_pairs import decoy_candidates

# Single slips of spelling.


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


Split = Literal["train", "development", "confirmation"]

CONSONANTS = (
    *("b", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "qu", "r", "s", "t", "v", "w", "x", "y", "z", "bl"),
    *("br", "ch", "cl", "cr", "dr", "fl", "fr", "gl", "gr", "pl", "pr", "sc", "sh", "sk", "sl", "sp", "st", "str"),
    *("th", "tr", "wh"),
)
VOWELS = ("a", "e", "i", "o", "u", "a", "e", "i", "o", "ai", "au", "ea", "ee", "ie", "oa", "oo", "ou", "y")
ENDINGS = (
    *("n", "r", "s", "t", "l", "m", "d", "k", "p", "ck", "ng", "st", "nd", "nt", "rd", "ss", "ll", "x", "y", "rm"),
    *("sh", "th"),
)
SUFFIXES = ("ing", "ed", "er", "ion", "ly", "ment", "able", "ness", "ist", "ous", "al", "ic")
CODE_CHARACTERS = string.ascii_uppercase + string.digits
SYMBOLS = "!#$%&*+-/:=?@"
SLIP_SHARE = 0.45


def split_of(text: str) -> Split:
    """The split of a string, by checksum, case and edge punctuation aside: 8/10 train, 1/10 each held-out split."""
    bucket = zlib.crc32(text.strip(string.punctuation).casefold().encode()) % 10
    return "confirmation" if bucket == 0 else "development" if bucket == 1 else "train"


@cache
def vocabulary(split: Split) -> tuple[str, ...]:
    """Our own list of everyday words, restricted to one split."""
    words = Path(__file__).with_name("words.txt").read_text(encoding="utf-8").split()
    return tuple(word for word in words if split_of(word) == split)


class Lexicon:
    """Draws strings of one split: everyday words, invented words, numbers, prices, dates, times, codes, addresses."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.words = vocabulary(split)

    def word(self, rng: random.Random) -> str:
        """Letters only, in lower, title or upper case."""
        text = self._owned(rng, self._plain)
        draw = rng.random()
        return text.capitalize() if draw < 0.4 else text.upper() if draw < 0.6 else text

    def price(self, rng: random.Random) -> str:
        return self._owned(rng, _price)

    def number(self, rng: random.Random) -> str:
        return self._owned(rng, _number)

    def code(self, rng: random.Random) -> str:
        return self._owned(rng, _code)

    def date(self, rng: random.Random) -> str:
        return self._owned(rng, _date)

    def any(self, rng: random.Random) -> str:
        draw = rng.random()
        if draw < 0.62:
            text = self.word(rng)
            if draw < 0.08:
                text += rng.choice((":", ",", ".", "!", "?", ";"))
            return text
        if draw < 0.72:
            return self.number(rng)
        if draw < 0.79:
            return self.price(rng)
        if draw < 0.86:
            return self.date(rng)
        if draw < 0.94:
            return self.code(rng)
        return self._owned(rng, _address if draw < 0.97 else _noise)

    def _plain(self, rng: random.Random) -> str:
        """A word; in training with a slip in ``SLIP_SHARE`` of draws.

        Were near misses of everyday words never in an image, a reader would deny whatever looks like one, held-out
        everyday words among them, without looking.
        """
        text = rng.choice(self.words) if rng.random() < 0.4 else _invented(rng)
        return _slip(text, rng) if self.split == "train" and rng.random() < SLIP_SHARE else text

    def _owned(self, rng: random.Random, draw: Callable[[random.Random], str]) -> str:
        """Draws until the string belongs to this split; ten draws a string on average for a held-out split."""
        while True:
            text = draw(rng)
            if split_of(text) == self.split:
                return text


def _invented(rng: random.Random) -> str:
    choice = rng.choice
    text = "".join(choice(CONSONANTS) + choice(VOWELS) for _ in range(rng.randint(1, 3)))
    draw = rng.random()
    if draw < 0.6:
        text += choice(ENDINGS)
    elif draw < 0.8:
        text += choice(CONSONANTS) + choice(SUFFIXES)
    return text if len(text) >= 3 else text + choice(ENDINGS)


def _slip(text: str, rng: random.Random) -> str:
    decoys = decoy_candidates(text, ()) if rng.random() < 0.5 else []
    return rng.choice(decoys) if decoys else random_edit(text, rng)


def _digits(rng: random.Random, low: int, high: int) -> str:
    return "".join(rng.choice(string.digits) for _ in range(rng.randint(low, high)))


def _number(rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.55:
        return _digits(rng, 2, 8)
    if draw < 0.75:
        return f"{rng.randint(1, 999)},{rng.randint(0, 999):03d}"
    if draw < 0.9:
        return f"{_digits(rng, 3, 3)}-{_digits(rng, 4, 4)}"
    return f"{rng.randint(1, 100)}%"


def _price(rng: random.Random) -> str:
    amount = f"{rng.randint(0, 10 ** rng.randint(1, 4))}.{rng.randint(0, 99):02d}"
    draw = rng.random()
    return f"${amount}" if draw < 0.35 else f"-{amount}" if draw < 0.4 else amount


def _date(rng: random.Random) -> str:
    day, month, year = rng.randint(1, 31), rng.randint(1, 12), rng.randint(1970, 2039)
    draw = rng.random()
    if draw < 0.3:
        return f"{day:02d}/{month:02d}/{year}"
    if draw < 0.55:
        return f"{year}-{month:02d}-{day:02d}"
    if draw < 0.7:
        return f"{day:02d}.{month:02d}.{year % 100:02d}"
    return f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}" + (f":{rng.randint(0, 59):02d}" if draw < 0.85 else "")


def _code(rng: random.Random) -> str:
    text = "".join(rng.choice(CODE_CHARACTERS) for _ in range(rng.randint(4, 9)))
    cut = rng.randint(2, 4)
    return f"{text[:cut]}-{text[cut:]}" if rng.random() < 0.35 and len(text) > 5 else text


def _address(rng: random.Random) -> str:
    name, place = _invented(rng), _invented(rng)
    return (
        f"{name}@{place[:5]}.{rng.choice(('com', 'org', 'net'))}"[:18]
        if rng.random() < 0.4
        else f"{place}.{rng.choice(('com', 'org', 'net', 'io'))}"
    )


def _noise(rng: random.Random) -> str:
    pool = string.ascii_letters + string.digits + SYMBOLS
    return "".join(rng.choice(pool) for _ in range(rng.randint(3, 8)))
