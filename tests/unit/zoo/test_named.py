"""Every named architecture: its tiny checkpoint loads, its processor is put together, image and text fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoConfig, AutoModelForImageTextToText

from sightline.backbones.processors import processor_of
from tests.zoo import NAMED, build

QUESTION = "Is the word EXIT visible in the image?"


@pytest.fixture(scope="module", params=sorted(NAMED))
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(request.param, tmp_path_factory.mktemp("zoo") / request.param)


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Any:
    return AutoModelForImageTextToText.from_pretrained(checkpoint).eval()


@pytest.fixture(scope="module")
def processor(checkpoint: Path) -> Any:
    return processor_of(checkpoint, AutoConfig.from_pretrained(checkpoint))


def photograph(width: int = 150, height: int = 100) -> Image.Image:
    noise = np.random.default_rng(3).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def prompt(processor: Any) -> str:
    """A question about one image in the words of the checkpoint's template, or of its processor where it has none."""
    if processor.chat_template is None:
        return f"{processor.image_token}{QUESTION}"
    turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": QUESTION}]}
    return str(
        processor.tokenizer.apply_chat_template(
            [turn], chat_template=processor.chat_template, add_generation_prompt=True, tokenize=False
        )
    )


def inputs_of(processor: Any, image: Image.Image) -> dict[str, torch.Tensor]:
    return dict(processor(text=[prompt(processor)], images=[image], return_tensors="pt", add_special_tokens=False))


@torch.no_grad()
def test_the_model_answers_a_question_about_an_image(model: Any, processor: Any) -> None:
    inputs = inputs_of(processor, photograph())
    logits = model(**inputs).logits
    assert logits.shape[:2] == inputs["input_ids"].shape
    assert logits.isfinite().all()


@torch.no_grad()
def test_there_is_a_placeholder_for_every_image_feature(model: Any, processor: Any) -> None:
    for size in ((150, 100), (60, 200), (400, 390)):
        inputs = inputs_of(processor, photograph(*size))
        features = model.get_image_features(**vision_only(inputs)).pooler_output
        given = sum(part.reshape(-1, part.shape[-1]).shape[0] for part in features)
        assert int((inputs["input_ids"] == model.config.image_token_id).sum()) == given


@torch.no_grad()
def test_the_answer_depends_on_the_image(model: Any, processor: Any) -> None:
    photo = photograph()
    seen, mirrored = (model(**inputs_of(processor, image)).logits[0, -1] for image in (photo, photo.rotate(180)))
    assert (seen - mirrored).abs().max() > 1e-3


def test_every_token_of_the_configuration_is_in_the_vocabulary(model: Any, processor: Any) -> None:
    assert len(processor.tokenizer) == model.config.get_text_config().vocab_size
    ids = processor.tokenizer(prompt(processor))["input_ids"]
    assert max(ids) < model.config.get_text_config().vocab_size


def vision_only(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    text = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "labels")
    return {name: value for name, value in inputs.items() if name not in text}
