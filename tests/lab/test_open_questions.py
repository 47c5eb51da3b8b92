"""Open questions have one right answer, which the page shows and the question does not tell."""

import random
from collections import Counter, defaultdict

import pytest

from lab.scenes.compose import DrawnWord, LabelledValue, Scene, inside
from lab.scenes.lexicon import split_of
from lab.scenes.open_questions import (
    CLEARLY_LARGER,
    COMPARISONS,
    LONGEST_ANSWER,
    TEMPLATES,
    amount,
    choose,
    open_questions,
)
from lab.scenes.paired_designs import BILL_WORDS, OPEN_DESIGNS, PAIRED_DESIGNS, compose_open
from sightline.probes.hard_pairs import normalise_word

SEEDS = range(6)
BLACK = (0, 0, 0)


@pytest.fixture(scope="module")
def asked():
    """(scene, its questions) of every design."""
    scenes = [compose_open(seed, "train", design) for design in OPEN_DESIGNS for seed in SEEDS]
    return [(scene, open_questions(scene, random.Random(number))) for number, scene in enumerate(scenes)]


def own(word):
    """A word like ``word`` that belongs to the training split, as what is asked about in these pages has to."""
    return next(text for text in (word + "a" * count for count in range(30)) if split_of(text) == "train")


ANCHOR, RIGHT, LOWER, FAR, SECOND = (own(word) for word in ("anchor", "right", "lower", "far", "second"))


def page(*places, angle=0.0):
    """A scene with words at (text, x, y), all in one font."""
    scene = Scene("page", "train", (255, 255, 255), angle=angle)
    scene.words += [DrawnWord(text, 0, 2, x, y, BLACK) for text, x, y in places]
    return scene


def answers(scene, kind):
    found = open_questions(scene, random.Random(0))
    return {question.text: question.answer for question in found if question.kind == kind}


def about(kind, *words):
    return TEMPLATES[kind].format(*words)


def test_every_kind_of_question_is_asked(asked):
    found = Counter(question.kind for _, questions in asked for question in questions)
    assert set(found) == set(TEMPLATES)
    assert min(found.values()) >= len(SEEDS)


def test_what_is_named_occurs_once_and_the_answer_is_on_the_page(asked):
    for scene, questions in asked:
        texts = Counter(normalise_word(word.text).casefold() for word in scene.words)
        for question in questions:
            assert texts[question.answer.casefold()] >= 1
            assert 1 <= len(question.answer) <= LONGEST_ANSWER
            assert question.answer.isascii()
            assert question.answer.isprintable()
            assert question.target in question.text
            for name in question.text.split('"')[1::2] or ["total"]:
                assert texts[name.casefold()] == 1, question.text
            assert question.answer not in question.text.split('"')[1::2]
            assert question.decoy.casefold() != question.answer.casefold()


def test_regions_are_where_answer_and_labels_stand(asked):
    for scene, questions in asked:
        boxes = defaultdict(list)
        for word in scene.words:
            boxes[normalise_word(word.text)].append(scene.box(word))
        for question in questions:
            assert len(question.regions) == len(question.roles)
            assert all(inside(box) for box in question.regions)
            assert question.roles[0] == "answer_value"
            assert question.regions[0] in boxes[question.answer]
            names = question.text.split('"')[1::2]
            assert [box for name in names for box in boxes[name]] == question.boxes("field_label")[: len(names)]


def test_comparisons_are_of_clearly_different_values_and_answered_with_the_larger(asked):
    checked = 0
    for scene, questions in asked:
        values = {normalise_word(pair.label.text): normalise_word(pair.value.text) for pair in scene.pairs}
        comparisons = [question for question in questions if question.kind == "larger_of"]
        assert len(comparisons) <= COMPARISONS
        for question in comparisons:
            both = [values[name] for name in question.text.split('"')[1::2]]
            small, large = sorted(value for text in both if (value := amount(text)) is not None)
            assert large >= CLEARLY_LARGER * small > 0
            assert amount(question.answer) == large
            assert {question.answer, question.decoy} == set(both)
            assert question.roles == ("answer_value", "comparison_anchor", "field_label", "field_label")
            checked += 1
    assert checked > 20


def test_values_and_totals_are_those_of_their_line(asked):
    checked = 0
    for _, questions in asked:
        for question in questions:
            if question.kind not in ("value_beside", "total"):
                continue
            (label,), value = question.boxes("field_label"), question.regions[0]
            assert value[0] > label[2]
            assert abs((value[1] + value[3]) / 2 - (label[1] + label[3]) / 2) < 32
            checked += 1
    assert checked > 50


@pytest.mark.parametrize("split", ["development", "confirmation"])
def test_held_out_questions_name_and_ask_for_strings_of_their_split(split):
    for seed in SEEDS:
        for design in PAIRED_DESIGNS:
            scene = compose_open(seed, split, design)
            for question in open_questions(scene, random.Random(seed)):
                texts = [question.answer, *question.text.split('"')[1::2]]
                assert {split_of(text) for text in texts} == {split}
            strays = {normalise_word(word.text).lower() for word in scene.words if split_of(word.text) != split}
            assert strays <= BILL_WORDS


def test_neighbours_are_told_in_the_line_of_the_page_however_it_is_turned():
    words = [(ANCHOR, 20, 200), (RIGHT, 380, 200), (LOWER, 20, 220), (FAR, 380, 220)]
    for angle in (0.0, 3.0, -3.0):
        scene = page(*words, angle=angle)
        assert answers(scene, "right_of")[about("right_of", ANCHOR)] == RIGHT
        assert answers(scene, "left_of")[about("left_of", FAR)] == LOWER
        assert answers(scene, "below")[about("below", ANCHOR)] == LOWER


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([(SECOND, 170, 208)], id="two lines beside one word"),
        pytest.param([(ANCHOR.upper(), 40, 400)], id="the word occurs twice, once in capitals"),
    ],
)
def test_what_could_be_meant_otherwise_is_not_asked(more):
    plain = [(ANCHOR, 20, 200), (RIGHT, 170, 196)]
    assert about("right_of", ANCHOR) in answers(page(*plain), "right_of")
    assert about("right_of", ANCHOR) not in answers(page(*plain, *more), "right_of")


def test_what_stands_far_below_is_not_below():
    assert about("below", ANCHOR) in answers(page((ANCHOR, 20, 100), (LOWER, 20, 125)), "below")
    assert not answers(page((ANCHOR, 20, 100), (LOWER, 20, 180)), "below")


def test_values_that_are_nearly_equal_are_not_compared():
    def compared(one, other):
        scene = page((ANCHOR, 20, 100), (one, 200, 100), (SECOND, 20, 150), (other, 200, 150))
        first, value, second, another = scene.words
        scene.pairs += [LabelledValue(first, value), LabelledValue(second, another)]
        return list(answers(scene, "larger_of").values())

    values = [text for text in map(str, range(2000, 9000)) if split_of(text) == "train"]
    assert compared(values[0], values[-1]) == [values[-1]]
    assert compared(values[0], values[1]) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$1,234.50", 1234.5),
        ("12", 12.0),
        ("0.91", 0.91),
        ("007", None),
        ("-3.20", None),
        ("12%", None),
        ("555-1234", None),
    ],
)
def test_amounts_are_prices_and_plain_numbers(text, value):
    assert amount(text) == value


def test_chosen_questions_take_kinds_in_turn(asked):
    scene, questions = next((scene, found) for scene, found in asked if scene.kind == "bill" and scene.total)
    kinds = {question.kind for question in questions}
    chosen = choose(questions, random.Random(3), len(kinds))
    assert {question.kind for question in chosen} == kinds
    assert len(choose(questions, random.Random(3), 1000)) == len(questions)
    assert scene.pairs
