"""Which open questions are asked, and with which wrong answer each is compared: drawn from one seeded generator."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sightline.core.probe import Probe


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
