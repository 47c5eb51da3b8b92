"""Which words may be asked for, and what stands against the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sightline.core.probe import Box
from sightline.probes import HardPairRules, ImageRegions, Word, build_hard_pairs
from sightline.probes.hard_pairs import REMEDIES, Presence, Shortage, candidates, obstacles

RULES = HardPairRules()
SMALL: Box = (0.1, 0.1, 0.15, 0.11)
TINY: Box = (0.1, 0.1, 0.105, 0.105)
LARGE: Box = (0.1, 0.1, 0.5, 0.5)

CASES: dict[str, tuple[str, Box, dict[str, Any]]] = {
    "too short": ("abc", SMALL, {"min_length": 3}),
    "too long": ("a" * 19, SMALL, {"max_length": 19}),
    "too small": ("total", TINY, {"min_area": 1e-5}),
    "too large": ("total", LARGE, {"max_area": 0.2}),
    "mostly symbols": ("a--bc", SMALL, {"max_symbol_share": 0.4}),
    "repeated": ("twice", SMALL, {"unique": False}),
}
"""Obstacle -> a word that meets it and nothing else, and the rule that lets it through."""


def met(text: str, box: Box, rules: HardPairRules = RULES) -> list[str]:
    return list(obstacles(text, box, Presence([text, "twice"]), rules))


@pytest.mark.parametrize("obstacle", CASES)
def test_the_option_that_is_suggested_lifts_the_obstacle(obstacle: str) -> None:
    text, box, lifted = CASES[obstacle]
    (field,) = lifted
    assert met(text, box) == [obstacle]
    assert met(text, box, replace(RULES, **lifted)) == []
    assert field.replace("_", "-") in REMEDIES[obstacle]


def test_every_suggestion_is_tried() -> None:
    assert set(CASES) == set(REMEDIES)


def test_what_no_option_lifts_is_named_too() -> None:
    assert met("", SMALL) == ["without text"]
    assert met("#$%&", SMALL) == ["without a letter or digit"]
    assert met("total", (0.9, 0.9, 1.01, 0.901)) == ["outside the image"]


def test_a_word_may_meet_several_obstacles() -> None:
    assert met("ab", LARGE) == ["too short", "too large"]


def test_candidates_are_the_words_that_meet_none_smallest_first() -> None:
    words = [("total", SMALL), ("ab", SMALL), ("other", (0.1, 0.1, 0.12, 0.11)), ("large", LARGE)]
    found = candidates(words, Presence(text for text, _ in words), RULES)
    assert [candidate.text for candidate in found] == ["other", "total"]


def image(image_id: str, *words: tuple[str, Box]) -> ImageRegions:
    return ImageRegions(image_id, f"{image_id}.jpg", tuple(Word(text, box) for text, box in words))


def test_the_suggestion_is_the_option_that_helps_most_images() -> None:
    records = [
        image("a", ("total", LARGE), ("cash", LARGE), ("change", LARGE), ("ab", SMALL)),
        image("b", ("ab", LARGE), ("cd", LARGE), ("ef", SMALL)),
        image("c", ("fine", SMALL), ("ab", LARGE)),
    ]
    pairs = build_hard_pairs(records, RULES)
    assert {probe.image_id for probe in pairs.probes} == {"c"}
    assert pairs.images_without_candidate == pairs.shortage.images == 2
    assert pairs.shortage.in_words() == (
        "5 words too large, 4 words too short; a smaller --min-length would give one to 2 of the 2 images"
    )


def test_nothing_is_suggested_where_no_single_option_helps() -> None:
    shortage = Shortage()
    shortage.add([("", SMALL), ("ab", LARGE)], Presence(["ab"]), RULES)
    assert shortage.in_words() == "1 word without text, 1 word too short"
    assert Shortage().in_words() == ""
