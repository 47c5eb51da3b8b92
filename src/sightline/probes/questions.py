"""Annotations that ask their own questions: which of them a probe set takes."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields, replace
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


# Which open questions are asked, and with which wrong answer each is compared: drawn from one seeded generator.


def sample_questions(
    probes: Sequence[Probe], each: int, rng: random.Random, kinds: Sequence[str] = ()
) -> tuple[Probe, ...]:
    """``each`` questions of every kind, sorted by kind and by their place in ``probes``.

    One shuffle per kind, in the order of ``kinds`` and then by name; a kind that does not occur draws nothing. With
    OCRBench's types, 10 each and seed 29 these are the paper's 100 questions.
    """
    places: dict[str, list[int]] = {}
    for place, probe in enumerate(probes):
        places.setdefault(probe.kind, []).append(place)
    chosen: list[int] = []
    for kind in (*(kind for kind in kinds if kind in places), *sorted(set(places) - set(kinds))):
        rng.shuffle(places[kind])
        chosen += places[kind][:each]
    return tuple(probes[place] for place in sorted(chosen, key=lambda place: (probes[place].kind, place)))


def add_decoys(probes: Iterable[Probe], pool: Sequence[Probe], rng: random.Random) -> tuple[Probe, ...]:
    """Gives every open question without one a decoy: an answer to another question of its kind, or else to any.

    One draw a question, among the first answers of ``pool``, each once, that are not its own first answer, case aside.
    What is drawn but accepted as well is drawn again. A question to which every answer is right stays without decoy.
    """
    by_kind: dict[str, list[str]] = {}
    for probe in pool:
        if probe.answers:
            by_kind.setdefault(probe.kind, []).append(_one_line(probe.answers[0]))
    unique = {kind: list(dict.fromkeys(answers)) for kind, answers in by_kind.items()}
    anything = list(dict.fromkeys(_one_line(probe.answers[0]) for probe in pool if probe.answers))
    found = []
    for probe in probes:
        if probe.is_open and not probe.decoy:
            probe = replace(probe, decoy=_decoy(probe, (unique.get(probe.kind, []), anything), rng))
        found.append(probe)
    return tuple(found)


def _decoy(probe: Probe, pools: Iterable[Sequence[str]], rng: random.Random) -> str:
    right = {_one_line(answer).casefold() for answer in probe.answers}
    first = _one_line(probe.answers[0]).casefold()
    for pool in pools:
        candidates = [answer for answer in pool if answer.casefold() != first]
        if any(answer.casefold() not in right for answer in candidates):
            while True:
                drawn = rng.choice(candidates)
                if drawn.casefold() not in right:
                    return drawn
    return ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
