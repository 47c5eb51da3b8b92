"""Which of the questions that annotations bring along a probe set takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.probes import HardPairRules
from sightline.probes.questions import refuse_word_rules, take_questions

RULES = HardPairRules()


def probe(number: int, image: str) -> Probe:
    return Probe(f"q{number}", f"{image}.jpg", image, "Is it?", "yes", "it", "it", ())


PROBES = [probe(number, image) for number, image in enumerate("abacb")]


def ids(rules: HardPairRules, *exclude: str) -> list[str]:
    return [probe.id for probe in take_questions(PROBES, rules, exclude).probes]


def test_all_questions_stay_in_file_order() -> None:
    assert ids(RULES) == ["q0", "q1", "q2", "q3", "q4"]


def test_a_limit_counts_images_and_keeps_their_questions_in_file_order() -> None:
    assert ids(replace(RULES, limit_images=2)) == ["q0", "q1", "q2", "q4"]
    assert ids(replace(RULES, limit_images=1), "a") == ["q1", "q4"]
    assert take_questions(PROBES, RULES, {"a", "elsewhere"}).excluded_images == 1


def test_shuffling_draws_the_images_and_keeps_the_questions_of_one_together() -> None:
    orders = {tuple(ids(replace(RULES, shuffle_images=True, seed=seed))) for seed in range(20)}
    assert len(orders) == 6
    assert ("q3", "q1", "q4", "q0", "q2") in orders


def test_a_changed_rule_about_words_is_refused_by_its_option() -> None:
    refuse_word_rules(replace(RULES, seed=3, limit_images=None, shuffle_images=True), "gsr")
    for changed, option in (({"min_length": 3}, "--min-length"), ({"negatives": False}, "--no-negatives")):
        with pytest.raises(SightlineError, match=f"format gsr brings its own questions; {option} is about words"):
            refuse_word_rules(replace(RULES, **changed), "gsr")
