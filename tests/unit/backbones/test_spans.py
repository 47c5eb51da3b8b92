from __future__ import annotations

from pathlib import Path

import pytest

from sightline.backbones import Backbone, load_backbone
from sightline.backbones.prompting import occurrences, target_span


@pytest.fixture(scope="module")
def backbone(data: Path) -> Backbone:
    return load_backbone(str(data / "tiny" / "llava"), device="cpu")


def words(backbone: Backbone, question: str, target: str) -> str:
    prompt = backbone.prompt(question, target)
    ids = [*prompt.head, *prompt.tail]
    return "".join(backbone.tokenizer.decode([ids[i]]) for i in prompt.spans["target"])


def test_the_queried_word_is_found_inside_its_quotes(backbone: Backbone) -> None:
    assert "Total42" in words(backbone, 'Does the image contain the exact text "Total42"? Answer yes or no.', "Total42")


def test_an_absent_target_falls_back_to_the_whole_prompt(backbone: Backbone) -> None:
    prompt = backbone.prompt("Is it there?", "zzzqqq")
    assert prompt.spans["target"] == prompt.spans["prompt"] == tuple(range(len(prompt.head) + len(prompt.tail)))


def test_case_is_ignored_only_when_nothing_matches_exactly(backbone: Backbone) -> None:
    assert words(backbone, "Is Word or WORD there?", "WORD").strip() == "WORD"


def test_question_span_covers_the_question_alone(backbone: Backbone) -> None:
    prompt = backbone.prompt("What is the total?", "")
    ids = [*prompt.head, *prompt.tail]
    text = "".join(backbone.tokenizer.decode([ids[i]]) for i in prompt.spans["question"])
    assert "What is the total?" in text
    assert "ASSISTANT" not in text


def test_overlapping_occurrences_all_count() -> None:
    assert occurrences([1, 1, 1, 2], [1, 1]) == [0, 1]
    assert occurrences([1, 2], []) == []


def test_an_empty_target_has_no_span(backbone: Backbone) -> None:
    assert target_span(backbone.tokenizer, [1, 2, 3], "  ") == ()


def test_the_focus_of_a_question_is_its_telling_words(backbone: Backbone) -> None:
    question = "What is the total of the invoice?"
    prompt = backbone.prompt(question)
    ids = [*prompt.head, *prompt.tail]
    words = backbone.tokenizer.decode([ids[i] for i in prompt.spans["focus"]]).replace("▁", " ").split()
    assert "".join(words) == "totalinvoice"
    assert set(prompt.spans["focus"]) < set(prompt.spans["question"]) < set(prompt.spans["prompt"])
    assert backbone.prompt("Is it?").spans["focus"] == backbone.prompt("Is it?").spans["question"]


@pytest.mark.parametrize("role", ["USER", "ASSISTANT", "user", "assistant"])
def test_a_target_is_looked_for_in_the_question_alone(backbone: Backbone, role: str) -> None:
    prompt = backbone.prompt(f'Is "{role}" there?', role)
    assert set(prompt.spans["target"]) < set(prompt.spans["question"])
    assert role in words(backbone, f'Is "{role}" there?', role)
    absent = backbone.prompt("Is it there?", role)
    assert absent.spans["target"] == absent.spans["prompt"], "the template's own words are not what was asked about"


def test_a_prompt_says_which_spans_fell_back_to_all_of_it(backbone: Backbone) -> None:
    there, absent = backbone.prompt('Is "Total42" there?', "Total42"), backbone.prompt("Is it there?", "zzzqqq")
    assert there.found("target") is True
    assert absent.found("target") is False
    assert absent.found("question") is absent.found("focus") is True
    assert absent.found("prompt") is absent.found("none") is None, "nothing was looked for"
