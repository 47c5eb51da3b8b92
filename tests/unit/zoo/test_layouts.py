"""The tiny checkpoints have what makes their architecture particular: tiles, windows, separators, sliding layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from sightline.backbones.checkpoints import processor_of
from tests.unit.zoo.checkpoints import inputs_of, photograph, placeholders
from tests.zoo import build


@pytest.fixture
def model(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    return AutoModelForImageTextToText.from_pretrained(build(request.param, tmp_path / request.param)).eval()


def only(*model_types: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("model", model_types, indirect=True)


def processor_for(model: Any) -> Any:
    return processor_of(Path(model.name_or_path), AutoConfig.from_pretrained(model.name_or_path))


@only("qwen2_5_vl")
def test_a_tower_with_windows_has_several_of_them_and_full_blocks(model: Any) -> None:
    vision = model.config.vision_config
    assert 0 < len(vision.fullatt_block_indexes) < vision.depth
    inputs = inputs_of(processor_for(model), photograph())
    _, high, wide = inputs["image_grid_thw"][0].tolist()
    assert min(high, wide) * vision.patch_size > vision.window_size


@only("qwen2_vl", "qwen2_5_vl", "glm4v")
def test_sections_of_positions_fill_the_part_of_a_head_that_turns(model: Any) -> None:
    text = model.config.text_config
    head = text.hidden_size // text.num_attention_heads
    turned = head * text.rope_parameters.get("partial_rotary_factor", 1.0)
    assert 2 * sum(text.rope_parameters["mrope_section"]) == turned


@only("llava_next", "llava_onevision", "internvl")
def test_a_wide_image_has_several_tiles_and_the_whole_once_more(model: Any) -> None:
    tiles = inputs_of(processor_for(model), photograph(160, 80))["pixel_values"]
    assert tiles.reshape(-1, 3, 56, 56).shape[0] >= 3


@only("llava_onevision")
def test_a_large_image_is_shrunk_to_the_features_of_nine_tiles(model: Any) -> None:
    count = placeholders(model, inputs_of(processor_for(model), photograph(336, 336)))
    assert count < 36 * 16  # what six by six tiles would have
    assert count == 16 + 12 * 12 + 12  # the base picture, nine tiles' worth of rows, a newline each


@only("smolvlm", "idefics3")
def test_tiles_have_their_place_written_between_them(model: Any) -> None:
    processor = processor_for(model)
    written = processor.tokenizer.decode(inputs_of(processor, photograph())["input_ids"][0])
    assert all(mark in written for mark in ("<row_1_col_1>", "<row_1_col_2>", "<row_2_col_1>", "<global-img>"))


@only("gemma3", "paligemma")
def test_sliding_layers_see_less_than_the_whole_prompt(model: Any) -> None:
    text = model.config.text_config
    assert set(text.layer_types) == {"sliding_attention", "full_attention"}
    inputs = inputs_of(processor_for(model), photograph())
    assert placeholders(model, inputs) < text.sliding_window < inputs["input_ids"].shape[1]


@only("mistral3")
def test_every_row_of_features_ends_with_a_break(model: Any) -> None:
    processor = processor_for(model)
    ids: torch.Tensor = inputs_of(processor, photograph(112, 84))["input_ids"][0]
    marks = [processor.tokenizer.convert_ids_to_tokens(int(token)) for token in ids]
    start, row = marks.index("[IMG]"), ["[IMG]"] * 4
    assert marks[start : start + 15] == [*row, "[IMG_BREAK]", *row, "[IMG_BREAK]", *row, "[IMG_END]"]
