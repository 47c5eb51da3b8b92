"""Held-out scenes: drawn the same every time, disjoint from training, shipped as locked."""

import json
import random
from collections import Counter, defaultdict
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from lab.reader.open_card import OPEN_DATA
from lab.reader.questions import everyday_neighbours, near_miss
from lab.scenes.compose import DrawnWord, LabelledValue, Scene, font_files, inside
from lab.scenes.lexicon import Lexicon, Split, random_edit, split_of, vocabulary
from lab.scenes.open_questions import (
    CLEARLY_LARGER,
    COMPARISONS,
    LONGEST_ANSWER,
    TEMPLATES,
    amount,
    choose,
    open_questions,
)
from lab.scenes.open_set import WRONG_VIEW, annotate, open_set, write_open_set, write_scenes, wrong_images
from lab.scenes.page_designs import DESIGNS
from lab.scenes.paired_designs import BILL_WORDS, OPEN_DESIGNS, PAIRED_DESIGNS, compose_open
from sightline import read_probes
from sightline.checks.demo import asset
from sightline.probes import HardPairRules, build_hard_pairs, load_regions, verify_lock
from sightline.probes.hard_pairs import normalise_word
from sightline.probes.images import image_digests

SPLITS = ("development", "confirmation")
IMAGES = 200


def shipped(split, name="probes.jsonl"):
    return read_probes(asset("scenes", split) / name)


def locked(split, name, images):
    """How many images the lock of a shipped set holds, all of them as they were."""
    folder, found = asset("scenes", split), shipped(split, name)
    return len(verify_lock(folder / name, found, images=image_digests(folder / images, found.images)).images)


@pytest.mark.parametrize("split", SPLITS)
def test_the_shipped_set_is_as_drawn_as_locked_and_as_built(split):
    file = asset("scenes", split) / "annotations.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    assert len(document["imgs"]) == IMAGES
    assert {info["kind"] for info in document["imgs"].values()} == set(DESIGNS)
    first = annotate(split, 7)
    assert first == annotate(split, 7)
    assert all(document["anns"][name] == annotation for name, annotation in first["anns"].items())
    assert all(document["imgToAnns"][name] == words for name, words in first["imgToAnns"].items())
    assert locked(split, "probes.jsonl", "images") == IMAGES
    rules = HardPairRules(seed=17, limit_images=None, min_area=1e-3, max_area=8e-3)
    assert build_hard_pairs(load_regions(file).records, rules).probes == shipped(split).probes


def test_sets_share_nothing():
    sets = [shipped(split) for split in SPLITS]
    assert not set(sets[0].image_ids) & set(sets[1].image_ids)
    sources = [{split_of(probe.source_text) for probe in found.probes} for found in sets]
    assert sources == [{"development"}, {"confirmation"}]
    for kind in (font_files, vocabulary):
        groups = [set(kind(role)) for role in ("train", *SPLITS)]
        assert sum(map(len, groups)) == len(set().union(*groups))


def test_written_images_show_the_words(tmp_path):
    document = write_scenes("development", 2, tmp_path)
    assert json.loads((tmp_path / "annotations.json").read_text(encoding="utf-8")) == document
    for image_id, info in document["imgs"].items():
        image = np.asarray(Image.open(tmp_path / "images" / info["file_name"]).convert("L"), dtype=float)
        assert image.shape == (info["height"], info["width"])
        contrast = []
        for name in document["imgToAnns"][image_id]:
            x, y, width, height = document["anns"][name]["bbox"]
            contrast.append(np.ptp(image[int(y) : int(y + height) + 1, int(x) : int(x + width) + 1]))
        assert np.median(contrast) > 80


def test_folder_that_cannot_be_made(refused, tmp_path):
    (tmp_path / "file").write_text("")
    for write in (write_scenes, write_open_set):
        refused("cannot write scenes", write, "development", 1, tmp_path / "file")


SIZES = {"development": 90, "confirmation": 150}


@pytest.mark.parametrize("split", SIZES)
def test_shipped_questions_are_as_locked_and_as_drawn(split):
    found = shipped(split, "open_probes.jsonl")
    assert locked(split, "open_probes.jsonl", "open_images") == SIZES[split]
    scenes, probes = open_set(split, SIZES[split])
    assert tuple(probes) == found.probes
    wrong = wrong_images(scenes, probes)
    assert tuple(wrong) == shipped(split, "open_wrong_images.jsonl").probes

    kinds = Counter(probe.kind for probe in probes)
    assert set(kinds) == set(TEMPLATES)
    assert min(kinds.values()) >= len(probes) / 8
    assert {split_of(probe.answers[0]) for probe in probes} == {split}
    assert len(set(Counter(probe.image_id for probe in probes).values())) == 1

    right = {probe.id: probe for probe in probes}
    for probe in wrong:
        assert (probe.view, probe.question) == (WRONG_VIEW, right[probe.id].question)
        assert probe.image in set(found.images) - {right[probe.id].image}


def test_open_sets_stay_small_and_their_first_scenes_the_same(tmp_path):
    files = [file for split in SIZES for file in asset("scenes", split).rglob("*") if "open_" in str(file)]
    assert sum(file.stat().st_size for file in files if file.is_file()) < 6e6

    written = write_open_set("development", 3, tmp_path)
    assert written.probes == shipped("development", "open_probes.jsonl").probes[:6]
    assert sorted(file.name for file in (tmp_path / "open_images").iterdir()) == sorted(written.images)
    alone = write_open_set("development", 1, tmp_path / "alone")
    assert len(alone.probes) == 2
    assert not (tmp_path / "alone" / "open_wrong_images.jsonl").exists()

    assert {word for word in BILL_WORDS if f"`{word}`" in OPEN_DATA} == BILL_WORDS


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


def test_every_kind_of_question_is_asked_about_what_stands_where_it_says(asked):
    found = Counter(question.kind for _, questions in asked for question in questions)
    assert set(found) == set(TEMPLATES)
    assert min(found.values()) >= len(SEEDS)

    for scene, questions in asked:
        texts = Counter(normalise_word(word.text).casefold() for word in scene.words)
        boxes = defaultdict(list)
        for word in scene.words:
            boxes[normalise_word(word.text)].append(scene.box(word))
        for question in questions:
            names = question.text.split('"')[1::2]
            assert texts[question.answer.casefold()] >= 1
            assert 1 <= len(question.answer) <= LONGEST_ANSWER
            assert question.answer.isascii()
            assert question.answer.isprintable()
            assert question.target in question.text
            assert all(texts[name.casefold()] == 1 for name in names or ["total"]), question.text
            assert question.answer not in names
            assert question.decoy.casefold() != question.answer.casefold()
            assert len(question.regions) == len(question.roles)
            assert all(inside(box) for box in question.regions)
            assert question.roles[0] == "answer_value"
            assert question.regions[0] in boxes[question.answer]
            assert [box for name in names for box in boxes[name]] == question.boxes("field_label")[: len(names)]


def test_comparisons_are_of_clearly_different_values_and_answered_with_the_larger(asked):
    checked = 0
    for scene, questions in asked:
        values = {normalise_word(pair.label.text): normalise_word(pair.value.text) for pair in scene.pairs}
        comparisons = [question for question in questions if question.kind == "larger_of"]
        assert len(comparisons) <= COMPARISONS
        checked += len(comparisons)
        for question in comparisons:
            both = [values[name] for name in question.text.split('"')[1::2]]
            small, large = sorted(value for text in both if (value := amount(text)) is not None)
            assert large >= CLEARLY_LARGER * small > 0
            assert amount(question.answer) == large
            assert {question.answer, question.decoy} == set(both)
            assert question.roles == ("answer_value", "comparison_anchor", "field_label", "field_label")
    assert checked > 20


def test_values_and_totals_are_those_of_their_line(asked):
    found = [each for _, questions in asked for each in questions if each.kind in ("value_beside", "total")]
    assert len(found) > 50
    for question in found:
        (label,), value = question.boxes("field_label"), question.regions[0]
        assert value[0] > label[2]
        assert abs((value[1] + value[3]) / 2 - (label[1] + label[3]) / 2) < 32


@pytest.mark.parametrize("split", SPLITS)
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


def test_what_could_be_meant_otherwise_is_not_asked():
    plain = [(ANCHOR, 20, 200), (RIGHT, 170, 196)]
    two_lines_beside_one_word, the_word_twice = (SECOND, 170, 208), (ANCHOR.upper(), 40, 400)
    assert about("right_of", ANCHOR) in answers(page(*plain), "right_of")
    for more in (two_lines_beside_one_word, the_word_twice):
        assert about("right_of", ANCHOR) not in answers(page(*plain, more), "right_of")
    assert about("below", ANCHOR) in answers(page((ANCHOR, 20, 100), (LOWER, 20, 125)), "below")
    assert not answers(page((ANCHOR, 20, 100), (LOWER, 20, 180)), "below"), "far below is not below"


AMOUNTS = {"$1,234.50": 1234.5, "12": 12.0, "0.91": 0.91, "007": None, "-3.20": None, "12%": None, "555-1234": None}


def test_amounts_are_prices_and_plain_numbers_and_those_nearly_equal_are_not_compared():
    def compared(one, other):
        scene = page((ANCHOR, 20, 100), (one, 200, 100), (SECOND, 20, 150), (other, 200, 150))
        first, value, second, another = scene.words
        scene.pairs += [LabelledValue(first, value), LabelledValue(second, another)]
        return list(answers(scene, "larger_of").values())

    values = [text for text in map(str, range(2000, 9000)) if split_of(text) == "train"]
    assert compared(values[0], values[-1]) == [values[-1]]
    assert compared(values[0], values[1]) == []
    assert {text: amount(text) for text in AMOUNTS} == AMOUNTS


def test_chosen_questions_take_kinds_in_turn(asked):
    scene, questions = next((scene, found) for scene, found in asked if scene.kind == "bill" and scene.total)
    kinds = {question.kind for question in questions}
    chosen = choose(questions, random.Random(3), len(kinds))
    assert {question.kind for question in chosen} == kinds
    assert len(choose(questions, random.Random(3), 1000)) == len(questions)
    assert scene.pairs


def test_strings_stay_in_their_split_and_only_training_misspells():
    shares = {}
    for split in get_args(Split):
        lexicon, rng, known = Lexicon(split), random.Random(3), set(vocabulary(split))
        assert {split_of(lexicon.any(rng)) for _ in range(300)} == {split}
        rng = random.Random(5)
        shares[split] = sum(lexicon.word(rng).lower() in known for _ in range(2000)) / 2000
    assert 0.15 < shares["train"] < 0.3
    assert shares["development"] > 0.35


def test_slips_are_one_edit_and_near_misses_belong_to_training_and_are_not_there():
    rng = random.Random(1)
    slips = [random_edit("Word-7", rng) for _ in range(300)]
    assert all(abs(len(edited) - 6) <= 1 and edited.isascii() for edited in slips)
    word = next(word for word in vocabulary("train") if len(word) == 6)
    misspelt = word[:2] + "q" + word[3:]
    for cased in (str.lower, str.upper, str.capitalize):
        assert cased(word) in everyday_neighbours(cased(misspelt))
    assert word not in everyday_neighbours(word)
    assert word in everyday_neighbours(word[:-1])
    rng = random.Random(7)
    taken = Counter(["table", "tables"])
    found = {text for _ in range(300) if (text := near_miss("table", rng, taken)) is not None}
    assert len(found) > 10
    assert {split_of(text) for text in found} == {"train"}
    assert not {text.casefold() for text in found} & set(taken)
