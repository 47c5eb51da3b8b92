"""Token ids of prompts, targets and answers."""

import pytest
from transformers import AutoTokenizer

from lab.reader import vocabulary
from lab.reader.forms import FORMS, QWEN3_VL
from lab.reader.processor import save_processor
from lab.scenes.open_questions import TEMPLATES
from sightline.backbones.llava import Llava
from sightline.backbones.prompting import OPEN_INSTRUCTION
from sightline.backbones.qwen3_vl import Qwen3VL
from sightline.checks.demo import asset

TARGETS = [
    "Total",
    "yes",
    "no",
    "text",
    "image",
    "user",
    "assistant",
    "$1,234.56",
    "a@b.io",
    "Café",
    "exact",
    '5"',
    "Answer",
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reader")
    save_processor(folder, QWEN3_VL)
    return AutoTokenizer.from_pretrained(folder)


def messages(target):
    question = f'Does the image contain the exact text "{target}"? Answer yes or no.'
    user = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}
    return [{"role": "system", "content": "You are a helpful assistant."}, user]


@pytest.mark.parametrize("target", TARGETS)
def test_prompt_is_fixed_tokens_around_the_spelled_target(tokenizer, target):
    prompt = tokenizer.apply_chat_template(messages(target), add_generation_prompt=True, tokenize=False)
    ids = tokenizer.encode(prompt, add_special_tokens=False)
    expected = [*vocabulary.PREFIX, vocabulary.IMAGE, vocabulary.VISION_END, *vocabulary.question_ids(target)]
    assert ids == expected
    assert tokenizer.encode(target, add_special_tokens=False) == vocabulary.spell(target)
    assert tokenizer.decode(ids) == prompt


@pytest.mark.parametrize(("answer", "token"), [(" yes", vocabulary.YES), (" no", vocabulary.NO)])
def test_scored_labels_are_answer_end_newline(tokenizer, answer, token):
    prompt = tokenizer.apply_chat_template(messages("Total"), add_generation_prompt=True, tokenize=False)
    turn = [*messages("Total"), {"role": "assistant", "content": answer}]
    full = tokenizer.apply_chat_template(turn, tokenize=False)
    assert full.startswith(prompt)
    prompt_ids = tokenizer.encode(prompt, add_special_tokens=False)
    ids = tokenizer.encode(full, add_special_tokens=False)
    assert ids[: len(prompt_ids)] == prompt_ids
    assert ids[len(prompt_ids) :] == [token, vocabulary.IM_END, vocabulary.NEWLINE]


@pytest.mark.parametrize("kind", TEMPLATES)
def test_open_prompt_and_answer_are_what_training_packs(tokenizer, kind):
    question = TEMPLATES[kind].format("TOTAL:", "$1,234.56")
    content = [{"type": "image"}, {"type": "text", "text": question + vocabulary.OPEN_INSTRUCTION}]
    turn = [{"role": "system", "content": vocabulary.OPEN_SYSTEM}, {"role": "user", "content": content}]
    prompt = tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    full = tokenizer.apply_chat_template([*turn, {"role": "assistant", "content": "no-1.50"}], tokenize=False)
    packed = vocabulary.open_question_ids(question)
    shared = [*vocabulary.OPEN_PREFIX, vocabulary.IMAGE, vocabulary.VISION_END]
    assert tokenizer.encode(prompt, add_special_tokens=False) == [*shared, *packed]
    answer = [*vocabulary.spell("no-1.50"), vocabulary.IM_END, vocabulary.NEWLINE]
    assert tokenizer.encode(full, add_special_tokens=False) == [*shared, *packed, *answer]
    assert tokenizer.decode(vocabulary.spell("no-1.50")) == "no-1.50"
    spelled = question.replace("TOTAL:", "").replace("$1,234.56", "").replace("total", "")
    assert len(vocabulary.open_ids(spelled)) <= 7, "a fixed part of the question is spelled"


def test_the_phrases_are_those_that_open_questions_are_asked_with():
    assert Qwen3VL.open_system == vocabulary.OPEN_SYSTEM
    assert f"\n{OPEN_INSTRUCTION}" == vocabulary.OPEN_INSTRUCTION


def test_new_phrases_leave_old_ids_alone(tokenizer):
    assert (vocabulary.SYSTEM_TEXT, vocabulary.HEAD, vocabulary.TAIL) == (11, 12, 13)
    assert (vocabulary.YES, vocabulary.NO) == (14, 15)
    assert (vocabulary.FIRST_BYTE, vocabulary.FIRST_OPEN) == (16, 272)
    shipped = AutoTokenizer.from_pretrained(asset("reader"))
    for token, number in shipped.get_vocab().items():
        assert tokenizer.convert_tokens_to_ids(token) == number, token


def test_vocabulary_size_matches(tokenizer):
    assert len(tokenizer) == vocabulary.VOCABULARY_SIZE
    assert tokenizer.convert_tokens_to_ids("<|image_pad|>") == vocabulary.IMAGE
    assert tokenizer.eos_token_id == vocabulary.IM_END


@pytest.mark.parametrize(("form", "backbone"), [("qwen3_vl", Qwen3VL), ("llava", Llava)])
def test_what_stands_before_the_visual_tokens_is_what_the_backbone_asks_with(tokenizer, form, backbone):
    content = [{"type": "image"}, {"type": "text", "text": "What is the total?"}]
    for system, prefix in (
        (backbone.system, FORMS[form].prefix),
        (backbone.open_system or backbone.system, FORMS[form].open_prefix),
    ):
        turn = [{"role": "system", "content": system}] if system is not None else []
        prompt = tokenizer.apply_chat_template([*turn, {"role": "user", "content": content}], tokenize=False)
        ids = tokenizer.encode(prompt, add_special_tokens=False)
        assert tuple(ids[: ids.index(vocabulary.IMAGE)]) == prefix
