"""The hard-pair builder: per image one small, unique word asked for verbatim, and a near miss that is not there."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from sightline.core.probe import Box, Probe
from sightline.errors import SightlineError, located
from sightline.probes.regions import ImageRegions

# Does a string stand in an image? As a whole transcription, or as a word within a longer one.


def standing_alone(word: str) -> re.Pattern[str]:
    """Matches ``word`` (casefolded) where no letter, digit or underscore touches it."""
    return re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")


class Presence:
    """How often a casefolded string occurs among the texts of one image.

    By default a text counts only as a whole. With ``lines=True`` the texts are lines, and a string also counts wherever
    it stands alone within one: the line "QTY: 5.00" holds the word "5.00".
    """

    def __init__(self, words: Iterable[str], *, lines: bool = False) -> None:
        self._texts = [word.casefold() for word in words if word]
        self._whole = Counter(self._texts)
        self._lines = lines

    def count(self, word: str) -> int:
        if not self._lines:
            return self._whole[word]
        pattern = standing_alone(word)
        return sum(len(pattern.findall(text)) for text in self._texts)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.count(word) > 0


class Substrings:
    """The casefolded strings that stand anywhere in the texts of one image: inside a word, or across two neighbours."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = " ".join(" ".join(texts).casefold().split())

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and text in self._texts


# Which words of an image may be asked for, and what stands against the others.

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


# Near misses of a word: look-alike substitutions, the next character, deletions; in a fixed order.

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


POSITIVE, NEGATIVE = "small_positive", "near_miss_negative"
_EDGE_PUNCTUATION = "\"'`.,;:!?()[]{}"


@dataclass(frozen=True)
class HardPairRules:
    """Which words may be asked for, and how they are drawn. The defaults are those of the paper."""

    version: Version = "confirmation-v2"
    seed: int = 17
    limit_images: int | None = 500
    """Stop after this many images have given a probe; None for all."""
    shuffle_images: bool = False
    min_length: int = 4
    max_length: int = 18
    min_area: float = 5e-5
    """Smallest box area, as a fraction of the image; inclusive, like the largest."""
    max_area: float = 1.2e-3
    pool: int = 8
    """The word is drawn from this many smallest candidates."""
    max_symbol_share: float = 0.35
    """Largest share of characters that are neither letters nor digits."""
    unique: bool = True
    """Whether the word must occur exactly once in its image."""
    negatives: bool = True
    lines: bool = False
    """Whether texts are lines: then a word is present, and a decoy ruled out, also as part of a longer text."""

    def __post_init__(self) -> None:
        if self.version not in get_args(Version):
            raise SightlineError(f"unknown construction {self.version!r}; known: {', '.join(get_args(Version))}")
        if not 1 <= self.min_length <= self.max_length:
            raise SightlineError(f"word lengths {self.min_length}..{self.max_length} are not a range of at least 1")
        if not 0.0 <= self.min_area <= self.max_area:
            raise SightlineError(f"box areas {self.min_area}..{self.max_area} are not a range of fractions")
        if self.pool < 1 or (self.limit_images is not None and self.limit_images < 1):
            raise SightlineError("the pool and the number of images must be at least 1")


@dataclass(frozen=True)
class HardPairs:
    """The probes (a negative directly follows its positive) and how many images gave none."""

    probes: tuple[Probe, ...]
    excluded_images: int
    shortage: Shortage
    """The images without a candidate word, and why they have none."""
    images_without_decoy: int

    @property
    def images_without_candidate(self) -> int:
        return self.shortage.images


def normalise_word(text: str, version: Version = "confirmation-v2") -> str:
    """The string that is asked for: single spaces inside, no quotes, brackets or sentence marks at the ends.

    The paper's constructions leave a space that stood before such a mark; ``strict-v3`` takes both away.
    """
    edges = _EDGE_PUNCTUATION + " " if version == "strict-v3" else _EDGE_PUNCTUATION
    return re.sub(r"\s+", " ", text.strip()).strip(edges)


def hard_question(text: str) -> str:
    return f'Does the image contain the exact text "{text}"? Answer yes or no.'


def build_hard_pairs(
    records: Sequence[ImageRegions],
    rules: HardPairRules,
    *,
    exclude: Collection[str] = (),
    progress: Callable[[Iterable[ImageRegions]], Iterable[ImageRegions]] = iter,
) -> HardPairs:
    """Builds the pairs, image by image, from one generator seeded with ``rules.seed``.

    The order of draws is part of the construction: one shuffle of all records (if asked for, before exclusion); then,
    per image that has a candidate, one choice of the word and one of the decoy. Skipped images draw nothing.
    """
    rng = random.Random(rules.seed)
    rows = list(records)
    if rules.shuffle_images:
        rng.shuffle(rows)
    excluded = frozenset(exclude)
    probes: list[Probe] = []
    shortage = Shortage()
    skipped = without_decoy = images = 0
    for record in progress(rows):
        if rules.limit_images is not None and images >= rules.limit_images:
            break
        if record.image_id in excluded:
            skipped += 1
            continue
        words = [(normalise_word(word.text, rules.version), word.box) for word in record.words]
        present = Presence((text for text, _ in words), lines=rules.lines)
        eligible = candidates(words, present, rules)
        if not eligible:
            shortage.add(words, present, rules)
            continue
        images += 1
        chosen = rng.choice(eligible[: rules.pool])
        rank = 1 + eligible.index(chosen)
        probes.append(_probe(record, chosen, rank, chosen.text, positive=True))
        if rules.negatives:
            with located(f"image {record.image_id!r}"):
                decoys = _decoys(chosen.text, record, present, rules.version)
            if decoys:
                probes.append(_probe(record, chosen, rank, rng.choice(decoys), positive=False))
            else:
                without_decoy += 1
    return HardPairs(tuple(probes), skipped, shortage, without_decoy)


def _decoys(text: str, record: ImageRegions, present: Presence, version: Version) -> list[str]:
    if version != "strict-v3":
        return decoy_candidates(text, present, version)
    found = decoy_candidates(text, Substrings(record.texts), version)
    # Deleting the only letter between two spaces leaves both.
    return [decoy for decoy in found if decoy == normalise_word(decoy, version)]


def _probe(record: ImageRegions, word: Candidate, rank: int, asked: str, *, positive: bool) -> Probe:
    extra: dict[str, object] = {}
    if record.dataset:
        extra["source_dataset"] = record.dataset
    if record.box_source:
        extra["bbox_source"] = record.box_source
    return Probe(
        id=f"{record.record_id}:{'hard-small-pos' if positive else 'hard-nearmiss-neg'}",
        image=record.image,
        image_id=record.image_id,
        question=hard_question(asked),
        label="yes" if positive else "no",
        target_text=asked,
        source_text=word.text,
        regions=(word.box,),
        kind=POSITIVE if positive else NEGATIVE,
        extra=extra | {"token_area": word.area, "token_area_rank": rank},
    )
