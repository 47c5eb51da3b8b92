"""The hard-pair builder: per image one small, unique word asked for verbatim, and a near miss that is not there."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.probes.candidates import Candidate, Shortage, candidates
from sightline.probes.decoys import Version, decoy_candidates
from sightline.probes.presence import Presence, Traces
from sightline.probes.region_records import ImageRegions

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
            try:
                decoys = _decoys(chosen.text, record, present, rules.version)
            except SightlineError as problem:
                raise SightlineError(f"image {record.image_id!r}: {problem}") from None
            if decoys:
                probes.append(_probe(record, chosen, rank, rng.choice(decoys), positive=False))
            else:
                without_decoy += 1
    return HardPairs(tuple(probes), skipped, shortage, without_decoy)


def _decoys(text: str, record: ImageRegions, present: Presence, version: Version) -> list[str]:
    if version != "strict-v3":
        return decoy_candidates(text, present, version)
    found = decoy_candidates(text, Traces(record.texts), version)
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
