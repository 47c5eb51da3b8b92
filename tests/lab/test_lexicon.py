"""Strings of the splits, and slips of spelling in training."""

import random

import pytest

from lab.scenes.lexicon import Lexicon, random_edit, split_of, vocabulary


@pytest.mark.parametrize("split", ["train", "development", "confirmation"])
def test_strings_stay_in_their_split(split):
    rng, lexicon = random.Random(3), Lexicon(split)
    assert {split_of(lexicon.any(rng)) for _ in range(300)} == {split}


def test_only_training_misspells():
    everyday = set(vocabulary("train"))
    rng, lexicon = random.Random(5), Lexicon("train")
    words = [lexicon.word(rng).lower() for _ in range(2000)]
    assert 0.15 < sum(word in everyday for word in words) / len(words) < 0.3
    rng, held_out = random.Random(5), Lexicon("development")
    known = set(vocabulary("development"))
    share = sum(held_out.word(rng).lower() in known for _ in range(1000)) / 1000
    assert share > 0.35


def test_random_edit_is_one_slip():
    rng = random.Random(1)
    for _ in range(300):
        edited = random_edit("Word-7", rng)
        assert abs(len(edited) - 6) <= 1
        assert all(character.isascii() for character in edited)
