"""Which types the general route is tried on, told from classes and settings."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from sightline.backbones import load_backbone
from sightline.backbones.general import model_class, refusal, refusal_of_settings, seeing_part
from sightline.checks.doctor import drawn_image, examined
from sightline.errors import SightlineError
from tests.zoo import build
from tests.zoo.building import build_wrapped


@pytest.mark.parametrize("model_type", ["qwen2_vl", "deepseek_vl", "janus", "qwen2_5_omni_thinker"])
def test_features_may_be_made_by_the_model_or_by_the_one_inside(model_type: str) -> None:
    assert refusal(model_class(model_type)) is None


@pytest.mark.parametrize(
    ("model_type", "words"),
    [
        ("mllama", "no get_image_features"),
        ("florence2", "an encoder for the whole prompt"),
        ("ernie4_5_vl_moe", "experts are told which tokens stand for an image"),
    ],
)
def test_a_type_that_cannot_be_tried_is_refused_with_the_reason(model_type: str, words: str) -> None:
    assert words in (refusal(model_class(model_type)) or "")


def test_pixels_under_another_name_are_refused_with_the_reason() -> None:
    class OtherPixels:
        config_class = SimpleNamespace(model_type="other_pixels")

        def get_image_features(self, pixel_values_images: object) -> None: ...

    assert "not made of pixel_values" in (refusal(OtherPixels) or "")


def test_embeddings_per_layer_are_refused_and_their_absence_is_not() -> None:
    def config(size: int) -> SimpleNamespace:
        return SimpleNamespace(get_text_config=lambda: SimpleNamespace(hidden_size_per_layer_input=size))

    assert "per-layer embeddings" in (refusal_of_settings(config(8)) or "")
    assert refusal_of_settings(config(0)) is None


def test_the_part_that_sees_is_inside_where_it_can_be() -> None:
    inside = SimpleNamespace(get_image_features=print)
    assert seeing_part(SimpleNamespace(model=inside, get_image_features=print)) is inside
    outside = SimpleNamespace(model=SimpleNamespace(), get_image_features=print)
    assert seeing_part(outside) is outside


@pytest.mark.parametrize("model_type", ["blip-2", "idefics2"])
def test_tokens_of_a_resampler_are_refused_since_they_have_no_cells(model_type: str, tmp_path: Path) -> None:
    from PIL import Image

    backbone = load_backbone(str(build(model_type, tmp_path / model_type)), device="cpu")
    with pytest.raises(SightlineError, match="no cells"):
        backbone.encode([backbone.preprocess(Image.new("RGB", (64, 48)))])


def test_a_type_without_fused_attention_is_loaded_with_the_plain_one(tmp_path: Path) -> None:
    backbone = load_backbone(str(build("got_ocr2", tmp_path / "got_ocr2")), device="cpu", attention="sdpa")
    assert backbone.model.config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("config", "words", "not_said"),
    [
        ({"model_type": "internvl_chat", "auto_map": {"AutoModel": "m.M"}}, ["auto_map", "InternVL3_5-8B-HF"], "newer"),
        ({"model_type": "kimi_vl", "auto_map": {"AutoModel": "m.M"}}, ["auto_map", "never run"], "newer"),
        ({"model_type": "llava_llama"}, ["llava-hf/llava-1.5-7b-hf"], "auto_map"),
        ({"model_type": "of_tomorrow"}, ["a newer one may know it"], "auto_map"),
        ({"architectures": ["X"]}, ["config.json names no model_type"], "None"),
    ],
)
def test_a_type_that_transformers_lacks_is_told_from_one_whose_code_comes_with_the_checkpoint(
    config: dict[str, object], words: list[str], not_said: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(SightlineError) as refused:
        load_backbone(str(tmp_path))
    assert all(word in str(refused.value) for word in words), str(refused.value)
    assert not_said not in str(refused.value)


@pytest.mark.parametrize("wrapper", ["qwen2_5_omni", "qwen3_omni_moe"])
def test_of_a_model_that_also_speaks_the_part_that_thinks_is_loaded(wrapper: str, tmp_path: Path) -> None:
    folder = build_wrapped(wrapper, tmp_path)
    backbone = load_backbone(str(folder), dtype="float32", device="cpu")
    assert backbone.model.config.model_type == wrapper
    found = examined(backbone, drawn_image().resize((320, 160)), wrapper, methods=False)
    assert [check.words for check in found if not check.passed] == []
