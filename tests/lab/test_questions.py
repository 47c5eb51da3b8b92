"""Near misses: not in the image, not of a held-out split, everyday words among them."""

import random
from collections import Counter

from lab.reader.questions import everyday_neighbours, near_miss
from lab.scenes.lexicon import split_of, vocabulary


def test_everyday_neighbours_are_one_edit_away_and_keep_the_case():
    word = next(word for word in vocabulary("train") if len(word) == 6)
    misspelt = word[:2] + "q" + word[3:]
    assert word in everyday_neighbours(misspelt)
    assert word.upper() in everyday_neighbours(misspelt.upper())
    assert word.capitalize() in everyday_neighbours(misspelt.capitalize())
    assert word not in everyday_neighbours(word)
    assert word in everyday_neighbours(word[:-1])


def test_near_misses_belong_to_training_and_are_not_there():
    rng = random.Random(7)
    taken = Counter(["table", "tables"])
    found = {text for _ in range(300) if (text := near_miss("table", rng, taken)) is not None}
    assert len(found) > 10
    assert {split_of(text) for text in found} == {"train"}
    assert not {text.casefold() for text in found} & set(taken)
