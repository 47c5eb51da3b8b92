"""Captions about two things."""

from __future__ import annotations

from typing import get_args

import pytest

from sightline.probes.formats.gsr import PHRASES, Family, parse_relation


@pytest.mark.parametrize(
    ("caption", "first", "phrase", "second", "family"),
    [
        ("A photo of a dog to the left of a bench", "dog", "to the left of", "bench", "left_right"),
        ("A photo of an potted plant to the right of an umbrella.", "potted plant", "to the right of", "umbrella",
         "left_right"),
        ("a cup on the left side of the laptop", "cup", "to the left of", "laptop", "left_right"),
        ("A photo of a teddy bear above a bed", "teddy bear", "above", "bed", "vertical"),
        ("A photo of a bowl under a table", "bowl", "below", "table", "vertical"),
        ("The cat is on top of the car.", "cat", "on top of", "car", "vertical"),
        ("The spoon is in the cup", "spoon", "inside", "cup", "topology"),
        ("A mug on a desk", "mug", "on", "desk", "topology"),
        ("The man is next to the horse", "man", "next to", "horse", "proximity"),
        ("A photo of a truck in front of a house", "truck", "in front of", "house", "depth"),
        ("A photo of a truck behind a house", "truck", "behind", "house", "depth"),
        ("a woman holding an umbrella", "woman", "holding", "umbrella", "interaction"),
        ("a boy sitting on a wall", "boy", "sitting on", "wall", "interaction"),
    ],
)  # fmt: skip
def test_a_caption_is_taken_apart(caption: str, first: str, phrase: str, second: str, family: str) -> None:
    assert parse_relation(caption) == (first, phrase, second, family)


def test_the_question_asks_for_the_relation_without_an_instruction() -> None:
    relation = parse_relation("A photo of a dog to the left of a bench")
    assert relation is not None
    assert relation.question == "Is the dog to the left of the bench?"
    assert str(relation) in relation.question


@pytest.mark.parametrize("caption", ["A photo of a bench", "", "above a bed", "A photo of a bench on the left"])
def test_a_caption_about_one_thing_has_no_relation(caption: str) -> None:
    assert parse_relation(caption) is None


def test_every_family_has_a_phrase_and_every_phrase_reads_back() -> None:
    assert {family for _, family in PHRASES.values()} == set(get_args(Family))
    for phrase, (asked, family) in PHRASES.items():
        assert parse_relation(f"a fork {phrase} a plate") == ("fork", asked, "plate", family)
        assert PHRASES[asked] == (asked, family)
