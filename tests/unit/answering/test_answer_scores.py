"""Scores of answers in words: cases worked out by the published rules, and a second implementation.

The processing of words has the examples of the VQA challenge's own page. The answers of the first three ANLS cases are
those of a published metric card; its printed mean of 1.0 does not follow from them, the values here do by the equation.
"""

import hashlib
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.answering.answer_scores import (
    CONTRACTIONS,
    TASK_RULES,
    AnswerScores,
    anls,
    anls_stripped,
    cleaned,
    contains,
    exact,
    light_soft_accuracy,
    ocrbench,
    rule_of,
    score_answer,
    soft_accuracy,
    vqa_words,
)
from sightline.core.text import edit_distance
from tests.independent.answer_scores import PAIRS, SCORES, agreement, distance, generated_pairs, sightline_scores
from tests.refusals import Refused

PUBLISHED_CONTRACTIONS = "f2c800b1132e79302dd72686ce8bba16120f1873f98a85561222e89317336e7a"
"""SHA-256 of the VQA challenge's table: its lower-case entries that change a word, sorted, ``from to`` a line."""


def test_both_implementations_agree_on_generated_pairs_neither_all_right_nor_all_wrong() -> None:
    pairs = generated_pairs()
    scores = [sightline_scores(pair) for pair in pairs]
    assert agreement(pairs, sightline_scores) == dict.fromkeys(SCORES, PAIRS)
    for name in SCORES:
        assert 0.2 < sum(score[name] > 0.0 for score in scores) / PAIRS < 0.8
    assert len({score["anls"] for score in scores}) > 50
    differ = [name for name in SCORES[1:] if sum(score[name] != score["exact"] for score in scores) < 20]
    assert differ == []


CLEANED = {
    "  Paris \n": "Paris", "Answer: Paris": "Paris", "ASSISTANT:Paris": "Paris", "answer：巴黎": "巴黎",
    '"Paris"': "Paris", "Answer: “Paris”": "Paris", "' Paris '": "Paris", "the answer: Paris": "the answer: Paris",
    '6"': '6"', "'": "'", "": "",
}  # fmt: skip


def test_an_answer_loses_its_speaker_and_the_quotes_around_it() -> None:
    assert {text: cleaned(text) for text in CLEANED} == CLEANED


WORDS = {
    "DONT": "don't", "100,978": "100978", "2:50 pm": "2:50 pm",  # the examples of the challenge's own page
    "3.5": "3.5", "No. 7.": "no 7", "two": "2", "none": "0", "eleven": "eleven",
    "The dog and an apple": "dog and apple", "Coca-Cola": "coca cola", "coca - cola": "coca cola",
    "girl's": "girl 's", "yes!": "yes",
}  # fmt: skip


def test_words_are_processed_as_the_challenge_says() -> None:
    assert {text: vqa_words(text) for text in WORDS} == WORDS


def test_the_contractions_are_those_that_were_published() -> None:
    lines = "\n".join(f"{bare} {full}" for bare, full in sorted(CONTRACTIONS.items()))
    assert hashlib.sha256(lines.encode()).hexdigest() == PUBLISHED_CONTRACTIONS


formula = partial(ocrbench, question_type="Handwritten Mathematical Expression Recognition")


def said_by(people: int) -> list[str]:
    """Answers of ten people, so many of whom say the same."""
    return ["stop"] * people + [f"other {i}" for i in range(10 - people)]


@pytest.mark.parametrize(("rule", "answer", "accepted", "score"), [
    # People are counted with one left out; an answer that all gave is right however few they are.
    *((soft_accuracy, "Stop.", said_by(n), s) for n, s in ((0, 0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1), (10, 1))),
    *((soft_accuracy, answer, ["stop"] * n, s) for n in range(1, 6) for answer, s in (("stop", 1.0), ("go", 0.0))),
    # Without one who said it, one of two is left; without the other, both: (1/2 + 1/2 + 1) / 3.
    (soft_accuracy, "stop", ["stop", "stop", "go"], 2 / 3),
    (soft_accuracy, "two", ["2"] * 10, 1.0),
    # The lighter processing knows neither number words nor contractions.
    (light_soft_accuracy, "two", ["2"] * 10, 0.0),
    (light_soft_accuracy, "The Coca-Cola", ["cocacola"] * 10, 1.0),
    (anls, "Denver Broncos", ["Denver Broncos", "Denver R. Broncos"], 1.0),
    (anls, "12/15/89", ["12/15/88"], 1 - 1 / 8),
    (anls, "Dear dr. Lobo", ["Dear Dr. Lobo", "Dr. Lobo"], 1.0),
    (anls, "Hello Wrld", ["Hello World"], 1 - 1 / 11),
    (anls, "kitten", ["sitting"], 1 - 3 / 7),
    (anls, "ab", ["abcd"], 0.0),  # exactly half: the equation says 0
    (anls, "abc", ["abcde"], 1 - 2 / 5),
    (anls, "completely different", ["stop"], 0.0),
    (anls, "two  words\n", ["Two Words"], 1.0),
    (anls, "", [""], 1.0),
    (anls, "", ["stop"], 0.0),
    # Only the stripped form overlooks punctuation.
    (anls, "12-15-88", ["12/15/88"], 1 - 2 / 8),
    (anls_stripped, "12-15-88", ["12/15/88"], 1.0),
    (anls_stripped, "$", ["?"], 1.0),
    # Case, punctuation and blanks are overlooked, and nothing else.
    (exact, " Coca-Cola! ", ["pepsi", "cocacola"], 1),
    (exact, "new\n york", ["New York"], 1),
    (exact, "the stop", ["stop"], 0),
    (exact, "ecole", ["école"], 0),
    # An answer of punctuation is itself, and stands in nothing else.
    (exact, "+", ["+"], 1),
    (exact, "-", ["+"], 0),
    (contains, "stop", ["+", ""], 0),
    (contains, "", [""], 1),
    (contains, "It says: STOP, here.", ["stop here"], 1),
    (contains, "sto", ["stop"], 0),
    # OCRBench wants the punctuation, and formulas their case.
    (ocrbench, "The word is\nSTOP", ["is stop"], 1),
    (ocrbench, "cocacola", ["coca-cola"], 0),
    (ocrbench, "anything", [""], 0),
    (formula, r"$x ^ { 2 } + Y$", ["x^{2}+Y"], 1),
    (formula, "X^2", ["x^2"], 0),
    (partial(ocrbench, question_type="HME100k"), "x ^ 2", ["x^2"], 1),
    (partial(ocrbench, question_type="Digit String Recognition"), "x ^ 2", ["x^2"], 0),
])  # fmt: skip
def test_every_rule_gives_what_was_published(
    rule: Callable[[str, list[str]], float], answer: str, accepted: list[str], score: float
) -> None:
    assert rule(answer, accepted) == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize(
    ("task", "rule"), [("textvqa", "soft_accuracy"), ("DocVQA", "anls"), ("ocrbench", "ocrbench"), ("", "exact")]
)
def test_the_score_is_the_one_of_the_benchmark(task: str, rule: str, refused: Refused) -> None:
    scores = score_answer(task, "12/15/89", ["12/15/88", "12/15/89.", "x"])
    assert rule_of(task) == rule
    assert scores.score == getattr(scores, rule)
    refused("without an accepted answer", score_answer, "qa", "stop", [])


@given(st.text(max_size=70), st.text(max_size=70))
def test_the_distance_by_bits_is_the_distance_by_definition(one: str, other: str) -> None:
    assert edit_distance(one, other) == distance(one, other)


@given(st.text(max_size=30), st.lists(st.text(max_size=30), min_size=1, max_size=10))
def test_no_text_breaks_a_score_or_leaves_its_range(answer: str, accepted: list[str]) -> None:
    for task in (*TASK_RULES, "qa"):
        scores = score_answer(task, answer, accepted)
        assert all(0.0 <= getattr(scores, name) <= 1.0 for name in AnswerScores.__dataclass_fields__)
        assert score_answer(task, accepted[0], accepted).exact
