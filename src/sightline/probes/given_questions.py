"""Annotations that ask their own questions: which of them a probe set takes."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import NamedTuple

from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.probes.hard_pairs import HardPairRules

_SHARED = {"seed", "limit_images", "shuffle_images"}
"""Rules of hard pairs that say which images are visited, not which words are asked for."""


class GivenQuestions(NamedTuple):
    probes: tuple[Probe, ...]
    excluded_images: int


def take_questions(probes: Sequence[Probe], rules: HardPairRules, exclude: Collection[str] = ()) -> GivenQuestions:
    """The questions of the first so many images that are not excluded: in file order, or shuffled image by image."""
    images = list(dict.fromkeys(probe.image_id for probe in probes))
    if rules.shuffle_images:
        random.Random(rules.seed).shuffle(images)
    wanted = [image for image in images if image not in exclude]
    rank = {image: position for position, image in enumerate(wanted[: rules.limit_images])}
    taken = [probe for probe in probes if probe.image_id in rank]
    if rules.shuffle_images:
        taken.sort(key=lambda probe: rank[probe.image_id])
    return GivenQuestions(tuple(taken), len(images) - len(wanted))


def refuse_word_rules(rules: HardPairRules, file_format: str) -> None:
    """A rule about words would do nothing here; one that was changed is refused by its option."""
    usual = HardPairRules()
    for rule in reversed(fields(rules)):  # --lines before the version that it brings along
        if rule.name not in _SHARED and getattr(rules, rule.name) != getattr(usual, rule.name):
            option = rule.name.replace("_", "-")
            if getattr(rules, rule.name) is False:
                option = f"no-{option}"
            raise SightlineError(f"format {file_format} brings its own questions; --{option} is about words")
