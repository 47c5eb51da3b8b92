"""Types that nobody wrote down: rules over the names of their settings make them small and keep them whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from sightline.backbones.checkpoints import processor_of
from sightline.errors import SightlineError
from tests.unit.zoo.checkpoints import features_of, inputs_of, photograph, placeholders
from tests.zoo import build
from tests.zoo.wild import shrunk


@torch.no_grad()
@pytest.mark.parametrize("model_type", ["aya_vision", "deepseek_vl", "ernie4_5_vl_moe", "glm_ocr", "qwen3_5"])
def test_a_type_built_by_rules_answers_about_an_image(model_type: str, tmp_path: Path) -> None:
    folder = build(model_type, tmp_path / model_type)
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    inputs = inputs_of(processor_of(folder, AutoConfig.from_pretrained(folder)), photograph())
    assert model(**inputs).logits.isfinite().all()
    assert placeholders(model, inputs) == features_of(model, inputs) > 0


def test_every_kind_of_layer_survives_shrinking() -> None:
    kinds = ["sliding_attention"] * 5 + ["full_attention"]
    small = shrunk({"num_hidden_layers": 12, "layer_types": kinds * 2, "hidden_size": 4096})
    assert small["layer_types"] == [*["sliding_attention"] * 3, "full_attention"]
    assert (small["num_hidden_layers"], small["hidden_size"]) == (4, 64)


def test_a_setting_that_is_nothing_stays_nothing() -> None:
    assert shrunk({"qk_rope_head_dim": 0, "head_dim": None}) == {"qk_rope_head_dim": 0, "head_dim": None}


def test_a_type_without_an_image_processor_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="transformers has no image processor for a 'evolla' model"):
        build("evolla", tmp_path / "evolla")
