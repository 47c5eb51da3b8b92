"""Tiny checkpoints, written down or made by rules: each loads, its processor is put together, image and text fit."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import AutoConfig, AutoModelForImageTextToText

from sightline.backbones.from_transformers import processor_of
from tests.refusals import Refused
from tests.unit.backbones.named import QUESTION, Zoo, photograph
from tests.zoo import NAMED, build
from tests.zoo.specimen import load_data
from tests.zoo.wild import shrunk

ABOUT_TEXT = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "labels")
ASKED: dict[str, str] = load_data("prompts.yaml")
BY_RULES = ("aya_vision", "deepseek_vl", "ernie4_5_vl_moe", "qwen3_5")


class Checkpoint:
    """A model with its processor, and what both make of an image."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForImageTextToText.from_pretrained(folder).eval()
        self.processor = processor_of(folder, AutoConfig.from_pretrained(folder))

    @property
    def prompt(self) -> str:
        """A question about one image in the words of the template, or of the processor where there is none."""
        if self.processor.chat_template is None:
            return f"{self.processor.image_token}{QUESTION}"
        turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": QUESTION}]}
        written = self.processor.tokenizer.apply_chat_template(
            [turn], chat_template=self.processor.chat_template, add_generation_prompt=True, tokenize=False
        )
        return str(written)

    def inputs(self, image: Image.Image) -> dict[str, torch.Tensor]:
        asked = {"return_tensors": "pt", "add_special_tokens": False, "return_mm_token_type_ids": True}
        return dict(self.processor(text=[self.prompt], images=[image], **asked))

    def features(self, inputs: dict[str, torch.Tensor]) -> int:
        """How many features the model makes of the image."""
        given = {name: value for name, value in inputs.items() if name not in ABOUT_TEXT}
        holder = self.model if hasattr(self.model, "get_image_features") else self.model.model
        return sum(
            part.reshape(-1, part.shape[-1]).shape[0] for part in holder.get_image_features(**given).pooler_output
        )

    def placeholders(self, inputs: dict[str, torch.Tensor]) -> int:
        return int((inputs["input_ids"] == self.model.config.image_token_id).sum())


Get = Callable[[str], Checkpoint]


@pytest.fixture(scope="module")
def checkpoint(zoo: Zoo) -> Get:
    return cache(lambda name: Checkpoint(zoo(name)))


@torch.no_grad()
@pytest.mark.parametrize("name", [*sorted(NAMED), *BY_RULES])
def test_a_model_is_asked_as_published_and_its_answer_depends_on_the_image(checkpoint: Get, name: str) -> None:
    here, photo = checkpoint(name), photograph(150, 100)
    inputs = here.inputs(photo)
    logits = here.model(**inputs).logits
    assert logits.shape[:2] == inputs["input_ids"].shape
    assert logits.isfinite().all()
    turned = here.model(**here.inputs(photo.rotate(180))).logits
    assert (logits[0, -1] - turned[0, -1]).abs().max() > 1e-3
    for size in [(150, 100), (60, 200), (400, 390)] if name in NAMED else [(150, 100)]:
        inputs = here.inputs(photograph(*size))
        assert here.placeholders(inputs) == here.features(inputs) > 0
    if name in NAMED:
        tokenizer, config = here.processor.tokenizer, here.model.config
        assert here.prompt == ASKED[config.model_type].replace("QUESTION", QUESTION)
        for word in (" yes", " no", "Yes", "No", " visible", " this"):
            assert len(tokenizer(word, add_special_tokens=False)["input_ids"]) == 1, word
        ids = tokenizer(here.prompt)["input_ids"]
        assert max(ids) < len(tokenizer) == config.get_text_config().vocab_size
        assert tokenizer.decode(ids, skip_special_tokens=False).endswith(here.prompt[-20:])


# What makes an architecture particular: tiles, windows, separators, sliding layers.


def test_windows_sections_of_positions_and_sliding_layers_are_as_published(checkpoint: Get) -> None:
    here = checkpoint("qwen2_5_vl")
    vision = here.model.config.vision_config
    assert 0 < len(vision.fullatt_block_indexes) < vision.depth
    _, high, wide = here.inputs(photograph(150, 100))["image_grid_thw"][0].tolist()
    assert min(high, wide) * vision.patch_size > vision.window_size, "several windows"
    for name in ("qwen2_vl", "qwen2_5_vl", "glm4v"):
        text = checkpoint(name).model.config.text_config
        turned = text.hidden_size // text.num_attention_heads * text.rope_parameters.get("partial_rotary_factor", 1.0)
        assert 2 * sum(text.rope_parameters["mrope_section"]) == turned, name
    for name in ("gemma3", "paligemma"):
        here = checkpoint(name)
        text = here.model.config.text_config
        assert set(text.layer_types) == {"sliding_attention", "full_attention"}
        inputs = here.inputs(photograph(150, 100))
        assert here.placeholders(inputs) < text.sliding_window < inputs["input_ids"].shape[1], "less than the prompt"


def test_tiles_and_what_stands_between_them(checkpoint: Get) -> None:
    for name in ("llava_next", "llava_onevision", "internvl"):
        tiles = checkpoint(name).inputs(photograph(160, 80))["pixel_values"]
        assert tiles.reshape(-1, 3, 56, 56).shape[0] >= 3, "several and the whole once more"
    here = checkpoint("llava_onevision")
    count = here.placeholders(here.inputs(photograph(336, 336)))
    assert count < 36 * 16  # what six by six tiles would have
    assert count == 16 + 12 * 12 + 12  # the base picture, nine tiles' worth of rows, a newline each
    for name in ("smolvlm", "idefics3"):
        here = checkpoint(name)
        written = here.processor.tokenizer.decode(here.inputs(photograph(150, 100))["input_ids"][0])
        assert all(mark in written for mark in ("<row_1_col_1>", "<row_1_col_2>", "<row_2_col_1>", "<global-img>"))
    here = checkpoint("mistral3")
    ids = here.inputs(photograph(112, 84))["input_ids"][0]
    marks = [here.processor.tokenizer.convert_ids_to_tokens(int(token)) for token in ids]
    start, row = marks.index("[IMG]"), ["[IMG]"] * 4
    assert marks[start : start + 15] == [*row, "[IMG_BREAK]", *row, "[IMG_BREAK]", *row, "[IMG_END]"]


# Types that nobody wrote down: rules over the names of their settings make them small and keep them whole.


def test_every_kind_of_layer_survives_shrinking_and_nothing_stays_nothing() -> None:
    kinds = ["sliding_attention"] * 5 + ["full_attention"]
    small = shrunk({"num_hidden_layers": 12, "layer_types": kinds * 2, "hidden_size": 4096})
    assert small["layer_types"] == [*["sliding_attention"] * 3, "full_attention"]
    assert (small["num_hidden_layers"], small["hidden_size"]) == (4, 64)
    assert shrunk({"qk_rope_head_dim": 0, "head_dim": None}) == {"qk_rope_head_dim": 0, "head_dim": None}


def test_a_type_without_an_image_processor_is_refused_with_the_reason(refused: Refused, tmp_path: Path) -> None:
    refused("transformers has no image processor for a 'evolla' model", build, "evolla", tmp_path / "evolla")
