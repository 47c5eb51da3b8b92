"""Every named architecture: its tiny checkpoint loads, its processor is put together, image and text fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from sightline.backbones.checkpoints import processor_of
from tests.unit.zoo.checkpoints import QUESTION, features_of, inputs_of, photograph, placeholders, prompt
from tests.zoo import NAMED, build

ASKED = {
    "qwen2_vl": "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
    f"<|vision_start|><|image_pad|><|vision_end|>{QUESTION}<|im_end|>\n<|im_start|>assistant\n",
    "llava_next": f"[INST] <image>\n{QUESTION} [/INST]",
    "llava_onevision": f"<|im_start|>user <image>\n{QUESTION}<|im_end|><|im_start|>assistant\n",
    "idefics3": f"<|begin_of_text|>User:<image>{QUESTION}<end_of_utterance>\nAssistant:",
    "smolvlm": f"<|im_start|>User:<image>{QUESTION}<end_of_utterance>\nAssistant:",
    "gemma3": f"<bos><start_of_turn>user\n<start_of_image>{QUESTION}<end_of_turn>\n<start_of_turn>model\n",
    "paligemma": f"<image>{QUESTION}",
    "mistral3": f"<s>[SYSTEM_PROMPT]You are a helpful assistant.[/SYSTEM_PROMPT][INST][IMG]{QUESTION}[/INST]",
    "internvl": f"<|im_start|>user\n<IMG_CONTEXT>\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n",
    "glm4v": f"[gMASK]<sop><|user|>\n<|begin_of_image|><|image|><|end_of_image|>{QUESTION}<|assistant|>\n",
}
"""A question in the layout of the published template. The default system message of Mistral 3 is a longer one."""
ASKED |= {"qwen2_5_vl": ASKED["qwen2_vl"], "glm46v": ASKED["glm4v"], "glm_ocr": ASKED["glm4v"]}


@pytest.fixture(scope="module", params=sorted(NAMED))
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(request.param, tmp_path_factory.mktemp("zoo") / request.param)


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Any:
    return AutoModelForImageTextToText.from_pretrained(checkpoint).eval()


@pytest.fixture(scope="module")
def processor(checkpoint: Path) -> Any:
    return processor_of(checkpoint, AutoConfig.from_pretrained(checkpoint))


@torch.no_grad()
def test_the_model_answers_a_question_about_an_image(model: Any, processor: Any) -> None:
    inputs = inputs_of(processor, photograph())
    logits = model(**inputs).logits
    assert logits.shape[:2] == inputs["input_ids"].shape
    assert logits.isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("size", [(150, 100), (60, 200), (400, 390)])
def test_there_is_a_placeholder_for_every_image_feature(model: Any, processor: Any, size: tuple[int, int]) -> None:
    inputs = inputs_of(processor, photograph(*size))
    assert placeholders(model, inputs) == features_of(model, inputs) > 0


@torch.no_grad()
def test_the_answer_depends_on_the_image(model: Any, processor: Any) -> None:
    photo = photograph()
    seen, turned = (model(**inputs_of(processor, image)).logits[0, -1] for image in (photo, photo.rotate(180)))
    assert (seen - turned).abs().max() > 1e-3


def test_questions_are_asked_as_the_published_template_asks_them(model: Any, processor: Any) -> None:
    assert prompt(processor) == ASKED[model.config.model_type]


def test_common_words_are_one_token_each(processor: Any) -> None:
    for word in (" yes", " no", "Yes", "No", " visible", " this"):
        assert len(processor.tokenizer(word, add_special_tokens=False)["input_ids"]) == 1, word


def test_every_token_of_the_configuration_is_in_the_vocabulary(model: Any, processor: Any) -> None:
    assert len(processor.tokenizer) == model.config.get_text_config().vocab_size
    ids = processor.tokenizer(prompt(processor))["input_ids"]
    assert max(ids) < model.config.get_text_config().vocab_size
    assert processor.tokenizer.decode(ids, skip_special_tokens=False).endswith(prompt(processor)[-20:])
