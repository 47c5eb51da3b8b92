"""Prompts: where a string stands in them, and spans of architectures that declare theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from sightline.arms.arm import parse_arm
from sightline.backbones import Backbone, load_backbone
from sightline.backbones.base import model_logits
from sightline.backbones.general import General
from sightline.backbones.prompting import occurrences, target_span
from sightline.core.prefix import Prompt
from sightline.core.selection import QuerySpan
from sightline.core.span import KeptSpan
from tests.unit.backbones.named import QUESTION, TARGET, TYPES, Zoo, general, photograph, prefix_of


@pytest.fixture(scope="module")
def backbone(data: Path) -> Backbone:
    return load_backbone(str(data / "tiny" / "llava"), device="cpu")


def words(backbone: Backbone, prompt: Prompt, span: QuerySpan) -> str:
    ids = [*prompt.head, *prompt.tail]
    return "".join(backbone.tokenizer.decode([ids[i]]) for i in prompt.spans[span])


TARGETS = ("Total42", "WORD", "USER", "ASSISTANT", "user", "assistant")
"""The last four are words of the template as well, or nearly."""


@pytest.mark.parametrize("target", TARGETS)
def test_the_queried_word_is_found_inside_its_quotes_and_in_the_question_alone(backbone: Backbone, target: str) -> None:
    there = backbone.prompt(f'Does the image contain the exact text "{target}"? Answer yes or no.', target)
    assert target in words(backbone, there, "target")
    assert set(there.spans["target"]) < set(there.spans["question"])
    assert there.found("target") is True


def test_case_is_ignored_only_when_nothing_matches_exactly(backbone: Backbone) -> None:
    assert words(backbone, backbone.prompt("Is Word or WORD there?", "WORD"), "target").strip() == "WORD"


@pytest.mark.parametrize("target", TARGETS)
def test_an_absent_word_falls_back_to_the_whole_prompt(backbone: Backbone, target: str) -> None:
    absent = backbone.prompt("Is it there?", target)
    everything = tuple(range(len(absent.head) + len(absent.tail)))
    assert absent.spans["target"] == absent.spans["prompt"] == everything, "the template's own words were not asked for"
    assert absent.found("target") is False
    assert absent.found("question") is absent.found("focus") is True
    assert absent.found("prompt") is absent.found("none") is None, "nothing was looked for"


def test_the_focus_of_a_question_is_its_telling_words(backbone: Backbone) -> None:
    prompt = backbone.prompt("What is the total of the invoice?", "")
    assert "What is the total of the invoice?" in words(backbone, prompt, "question")
    assert "ASSISTANT" not in words(backbone, prompt, "question")
    assert words(backbone, prompt, "focus").replace("▁", "").replace(" ", "") == "totalinvoice"
    assert set(prompt.spans["focus"]) < set(prompt.spans["question"]) < set(prompt.spans["prompt"])
    assert backbone.prompt("Is it?").spans["focus"] == backbone.prompt("Is it?").spans["question"]


def test_overlapping_occurrences_all_count_and_an_empty_target_has_none(backbone: Backbone) -> None:
    assert occurrences([1, 1, 1, 2], [1, 1]) == [0, 1]
    assert occurrences([1, 2], []) == []
    assert target_span(backbone.tokenizer, [1, 2, 3], "  ") == ()


# The general route with declared cells: prompts, the image shown smaller, separators.


@pytest.fixture(scope="module", params=TYPES)
def declared(request: pytest.FixtureRequest, zoo: Zoo) -> General:
    return general(zoo(request.param))


def test_the_prompt_is_what_the_processor_itself_writes(declared: General) -> None:
    """Of image and question together, in one call."""
    processor, image = declared.processor, photograph()
    prompt = declared.prompt(QUESTION, TARGET)
    text = declared.processor_text(QUESTION)
    doubled = declared.tokenizer.bos_token is not None and text.startswith(declared.tokenizer.bos_token)
    inputs = processor(text=[text], images=[image], return_tensors="pt", add_special_tokens=not doubled)
    ids = (*prompt.head, *declared.span_ids(image.size), *prompt.tail)
    assert inputs["input_ids"][0].tolist() == list(ids)


@pytest.mark.parametrize("name", ["idefics3", "smolvlm", "mistral3"])
def test_a_smaller_image_is_what_the_model_makes_of_it(zoo: Zoo, name: str) -> None:
    """When its own processor is asked for as few pixels."""
    declared, image, arm = general(zoo(name)), photograph(), parse_arm("resize:0.5")
    pixels = declared.preprocess(image, budget=arm.image_budget)
    (encoded,) = declared.encode([pixels])
    prompt = declared.prompt(QUESTION, TARGET)
    smaller = declared.under(pixels.options)
    theirs = model_logits(smaller, image, (*prompt.head, *prompt.tail), len(prompt.head))
    prefix = prefix_of(smaller, encoded, prompt, torch.arange(encoded.n))
    assert (declared.language.prefix_logits(prefix) - theirs).abs().max() <= 1e-4
    assert encoded.n < encoded.full_n
    assert prefix.full_length == len(prompt.head) + len(declared.span_ids(image.size)) + len(prompt.tail)


# ---------------------------------------------------------------------- separators


@pytest.mark.parametrize("name", ["llava_next", "llava_onevision", "mistral3"])
def test_what_ends_a_row_stays_with_it(zoo: Zoo, name: str) -> None:
    declared = general(zoo(name))
    (encoded,) = declared.encode([declared.preprocess(photograph())])
    separators = encoded.separators
    assert separators is not None
    *before, (rows, columns) = encoded.layout
    first = sum(high * wide for high, wide in before)
    assert len(separators.slots) == rows
    third = torch.tensor([first + 2 * columns + 1])
    assert separators.kept_separators(third, encoded.n).tolist() == [2] + [rows - 1] * (name == "mistral3")
    everything = torch.arange(encoded.n)
    assert separators.kept_separators(everything, encoded.n).tolist() == list(range(rows))
    if before:
        assert separators.kept_separators(torch.arange(first), encoded.n).tolist() == []


@pytest.mark.parametrize("name", ["idefics3", "smolvlm"])
def test_what_announces_a_tile_stays_with_it(zoo: Zoo, name: str) -> None:
    declared, image = general(zoo(name)), photograph()
    (encoded,) = declared.encode([declared.preprocess(image)])
    separators, ids = encoded.separators, torch.tensor(declared.span_ids(image.size))
    assert separators is not None

    def written(anchors: Tensor) -> str:
        kept = KeptSpan.of(separators, anchors, encoded.n)
        return str(declared.tokenizer.decode(ids[kept.slots], clean_up_tokenization_spaces=False))

    columns, rows = declared.tiles(image.size)  # type: ignore[attr-defined]
    assert (columns, rows) == (4, 3)
    fake, token = "<fake_token_around_image>", "<image>"
    assert written(torch.tensor([4, 6])) == f"{fake}<row_1_col_2>{token * 2}{fake}"
    last = encoded.n - 1
    assert written(torch.tensor([last])).endswith(f"{fake}<global-img>{token}{fake}")
    both = written(torch.tensor([0, last]))
    assert both.startswith(f"{fake}<row_1_col_1>{token}")
    assert both.count("col") == 1
    assert written(torch.arange(encoded.n)) == declared.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
