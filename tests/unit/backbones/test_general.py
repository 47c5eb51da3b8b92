"""The general route: which types and decoders it is tried on, and checkpoints that the file of their type declines."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

from sightline.backbones import Backbone, load_backbone
from sightline.backbones.base import model_logits
from sightline.backbones.decoder_trials import AdjustedHead, loop_mismatch, output_head
from sightline.backbones.from_transformers import model_class, refusal
from sightline.backbones.general import General, image_feature_model
from sightline.backbones.llava import Llava
from sightline.backbones.loading import Served, backbone_class, options_for, served_by
from sightline.checks.doctor import drawn_image, examined
from sightline.errors import SightlineError
from sightline.geometry.cells import grid_cells
from tests.refusals import Refused
from tests.unit.backbones.named import QUESTION, TARGET, Zoo, general, photograph, prefix_of
from tests.zoo import NAMED
from tests.zoo.building import build_wrapped, write
from tests.zoo.specimen import Species
from tests.zoo.wild import species_of

# Which types the general route is tried on, told from classes and settings.


class OtherPixels:
    config_class = SimpleNamespace(model_type="other_pixels")

    def get_image_features(self, images: object) -> None: ...


def test_types_whose_class_makes_features_of_pixels_are_tried_and_others_refused_with_the_reason() -> None:
    """Made by the model or by the one inside."""
    for model_type in ("qwen2_vl", "deepseek_vl", "janus", "qwen2_5_omni_thinker"):
        assert refusal(model_class(model_type)) is None
    for kind, words in [
        (model_class("idefics"), "no get_image_features"),
        (model_class("florence2"), "an encoder for the whole prompt"),
        (OtherPixels, "not made of pixel_values"),
    ]:
        assert words in (refusal(kind) or "")
    inside = SimpleNamespace(get_image_features=print)
    assert image_feature_model(SimpleNamespace(model=inside, get_image_features=print)) is inside
    outside = SimpleNamespace(model=SimpleNamespace(), get_image_features=print)
    assert image_feature_model(outside) is outside


@pytest.mark.parametrize(("config", "words", "not_said"), [
    ({"model_type": "internvl_chat", "auto_map": {"AutoModel": "m.M"}}, ["auto_map", "InternVL3_5-8B-HF"], "newer"),
    ({"model_type": "kimi_vl", "auto_map": {"AutoModel": "m.M"}}, ["auto_map", "never run"], "newer"),
    ({"model_type": "phi4mm", "auto_map": {"AutoModel": "m.M"}}, ["multimodal-instruct@refs/pr/70"], "newer"),
    ({"model_type": "llava_llama"}, ["llava-hf/llava-1.5-7b-hf"], "auto_map"),
    ({"model_type": "of_tomorrow"}, ["a newer one may know it"], "auto_map"),
    ({"architectures": ["X"]}, ["config.json names no model_type"], "None"),
])  # fmt: skip
def test_a_type_that_transformers_lacks_is_told_from_one_whose_code_comes_with_the_checkpoint(
    config: dict[str, object], words: list[str], not_said: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(SightlineError) as refused:
        load_backbone(str(tmp_path))
    assert all(word in str(refused.value) for word in words), str(refused.value)
    assert not_said not in str(refused.value)


def failed(backbone: Backbone, size: tuple[int, int] = (320, 160), methods: bool = True) -> list[str]:
    """What doctor's checks say where they do not pass."""
    kind = backbone.model.config.model_type
    found = examined(backbone, drawn_image().resize(size), kind, methods=methods)
    return [check.words for check in found if not check.passed]


TOLD_MORE = {"ernie4_5_vl_moe": 3, "hunyuan_vl": 4, "granite4_vision": 1, "gemma4_e2b": 1}
"""Experts that are told which tokens stand for an image; placeholders between marks, positions on four axes; features
before single layers; layers that read ids once more. With axes of positions."""
ASKING_FOR_PACKAGES = (
    "cohere2_vision", "fast_vlm", "gemma3n", "gemma4_unified", "inkling_mm_model", "kimi_k25", "lfm2_vl", "llama4",
    "minimax_m3_vl", "muse_glimmer", "perception_lm", "step3p7",
)  # fmt: skip
"""Their image processors exist for torchvision alone, or their towers in timm."""
OTHERWISE = ("pp_chart2table", "video_llava")
"""Placeholders that the template alone knows; pixel values by another name."""
SPEAKING = ("qwen2_5_omni", "qwen3_omni_moe")
"""Models that also speak, of which the part that thinks is loaded."""
BEYOND = {"gemma3n": True, "fast_vlm": True, "perception_lm": False}
"""Whether they read far beyond their cells."""


@pytest.mark.parametrize("model_type", [*TOLD_MORE, *ASKING_FOR_PACKAGES, *OTHERWISE, *SPEAKING])
def test_a_type_that_needs_more_or_says_things_otherwise_passes_every_check(
    zoo: Zoo, model_type: str, tmp_path: Path
) -> None:
    if model_type in SPEAKING:
        backbone = load_backbone(str(build_wrapped(model_type, tmp_path)), dtype="float32", device="cpu")
        assert backbone.model.config.model_type == model_type
    else:
        backbone = general(zoo(model_type))
    if model_type in TOLD_MORE:
        assert backbone.axes == TOLD_MORE[model_type]
        assert failed(backbone, drawn_image().size) == []
    else:
        assert failed(backbone, methods=False) == []
    if model_type in BEYOND:
        assert isinstance(backbone, General)
        assert ("convolutions read beyond them" in served_by(backbone)["images"]) == BEYOND[model_type]
        assert backbone.no_cells is None
        ((side, other), *_) = backbone.plan((320, 160)).layout
        assert side == other > 1


def test_a_type_without_fused_attention_is_loaded_with_the_plain_one(zoo: Zoo) -> None:
    backbone = load_backbone(str(zoo("got_ocr2")), device="cpu", attention="sdpa")
    assert backbone.model.config._attn_implementation == "eager"


@pytest.mark.skipif(find_spec("torchvision") is not None, reason="torchvision is installed")
def test_without_torchvision_such_a_type_is_refused_by_name(zoo: Zoo) -> None:
    folder = zoo("llama4")
    with pytest.raises(SightlineError, match="Llama4ImageProcessor needs torchvision, which is not installed"):
        load_backbone(str(folder), device="cpu")


# Checkpoints that the file of their type was not written for, Pixtral for one: the general route serves them.


def test_pixtral_takes_the_general_route_everywhere_and_its_cells_and_logits_are_its_own(tmp_path: Path) -> None:
    mistral = NAMED["mistral3"]
    config = {name: value for name, value in mistral.config.items() if name != "spatial_merge_size"}
    pixtral = replace(
        mistral,
        model_class="LlavaForConditionalGeneration",
        config={**config, "vision_feature_select_strategy": "full"},
        processor={**mistral.processor, "spatial_merge_size": 1},
    )
    folder, image = write(pixtral, tmp_path / "pixtral"), photograph()
    backbone = general(folder)
    assert type(backbone) is General
    assert Served.by_description(folder).architecture == "General"
    assert options_for(folder).described() == {}
    assert backbone_class("llava") is Llava, "without a checkpoint the type alone decides"
    (encoded,) = backbone.encode([backbone.preprocess(image)])
    assert encoded.layout == ((10, 15),)
    assert np.abs((encoded.cells - grid_cells(10, 15)) * np.tile(image.size, 2)).max() < 1
    assert encoded.separators is not None
    prompt = backbone.prompt(QUESTION, TARGET)
    ours = backbone.language.prefix_logits(prefix_of(backbone, encoded, prompt, torch.arange(encoded.n)))
    theirs = model_logits(backbone, image, (*prompt.head, *prompt.tail), len(prompt.head))
    assert (ours - theirs).abs().max() <= 1e-4


def with_sliding_layers(species: Species) -> Species:
    sliding = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    return replace(species, config={**species.config, "text_config": {**species.config["text_config"], **sliding}})


def with_the_class_token_among_its_tokens(species: Species) -> Species:
    strategy = {"vision_feature_select_strategy": "full"}
    return replace(species, config={**species.config, **strategy}, processor={**species.processor, **strategy})


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        ("internvl", with_sliding_layers, "not InternVL: language layers of type"),
        ("llava", with_the_class_token_among_its_tokens, "not Llava: its class token is one of the image's tokens"),
        ("llava", lambda species: replace(species, image_processor={**species.image_processor, "do_normalize": False}),
         "not Llava: its image processor has do_normalize = false"),
    ],
)  # fmt: skip
def test_what_the_file_of_a_type_cannot_serve_takes_the_general_route_and_says_so(
    kind: str, change: Callable[[Species], Species], reason: str, tmp_path: Path
) -> None:
    folder = write(change(NAMED.get(kind) or species_of(kind)), tmp_path / kind)
    backbone = load_backbone(str(folder), dtype="float32", device="cpu")
    assert type(backbone) is General
    assert reason in served_by(backbone)["images"]
    assert Served.by_description(folder).architecture == "General"
    assert failed(backbone) == []


# Which decoders our loop runs as they run themselves.


def decoder(layers: int = 3, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 100, "head_dim": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = transformers.Qwen3Config(
        **sizes, **heads, num_hidden_layers=layers, **{"initializer_range": 0.2, **changes}
    )
    torch.manual_seed(0)
    return transformers.Qwen3Model._from_config(config, dtype=dtype, attn_implementation="sdpa")


class Shifted(transformers.Qwen3Model):  # type: ignore[misc]
    """Does something behind the last layer."""

    def forward(self, *given: Any, **named: Any) -> Any:
        output = super().forward(*given, **named)
        output.last_hidden_state = output.last_hidden_state + 1.0
        return output


class Scaled(transformers.Qwen3Model):  # type: ignore[misc]
    """Scales the embeddings."""

    def forward(self, inputs_embeds: Tensor, **named: Any) -> Any:
        return super().forward(inputs_embeds=inputs_embeds * 2, **named)


def between_layers(made: Any) -> None:
    made.layers[1].register_forward_pre_hook(lambda layer, given: (given[0] * 1.01, *given[1:]))


LONG: dict[str, Any] = {"layers": 100, "dtype": torch.bfloat16}
"""Two kernels in bfloat16 end 9% of the largest value apart, though in each layer they differ by 1%."""
SLIDING: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 2, "max_window_layers": 1}


@pytest.mark.parametrize(("settings", "change", "reason"), [
    *(({"dtype": dtype}, None, "") for dtype in (torch.float32, torch.float16, torch.bfloat16)),
    (LONG, None, ""),
    ({}, between_layers, "gives something else"),
    ({}, lambda made: setattr(made, "__class__", Shifted), "gives something else"),
    ({}, lambda made: setattr(made, "__class__", Scaled), "gives something else"),
    (SLIDING, None, "it has layers of type sliding_attention"),
])  # fmt: skip
def test_a_plain_decoder_is_run_by_the_loop_and_whatever_one_does_beside_its_layers_is_noticed(
    settings: dict[str, Any], change: Callable[[Any], None] | None, reason: str
) -> None:
    made = decoder(**settings)
    if change is not None:
        change(made)
    found = loop_mismatch(made, made, 1)
    assert reason in (found or "")
    assert (found is None) == (reason == "")


# The head that the audited path multiplies with is the model's.


class Body(nn.Module):
    def forward(self, inputs_embeds: Tensor, **_: Any) -> Any:
        return SimpleNamespace(last_hidden_state=inputs_embeds * 2)


class Model(nn.Module):
    def __init__(self, change: Any, **settings: float) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.body, self.change = Body(), change
        self.embedding, self.head = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
        for part in (self.embedding, self.head):
            nn.init.normal_(part.weight, generator=generator)
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(**settings))

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def forward(self, **given: Any) -> Any:
        return SimpleNamespace(logits=self.change(self.head(self.body(**given).last_hidden_state)))


@pytest.mark.parametrize(("settings", "change", "drawn"), [
    ({"final_logit_softcapping": 3.0}, lambda logits: torch.tanh(logits / 3.0) * 3.0, 1),
    ({"logit_scale": 0.25}, lambda logits: logits * 0.25, 1),
    ({"logits_scaling": 8.0}, lambda logits: logits / 8.0, 1),
    # Small logits: scaled alone fits within what is allowed, scaled and capped fits better.
    ({"final_logit_softcapping": 40.0, "output_multiplier": 0.2},
     lambda logits: torch.tanh(logits * 0.2 / 40.0) * 40.0, 50),
])  # fmt: skip
def test_what_is_done_behind_the_head_is_done_too(settings: dict[str, float], change: Any, drawn: float) -> None:
    model = Model(change, **settings)
    head = output_head(model, model.body)
    assert isinstance(head, AdjustedHead)
    hidden = drawn * torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(head(hidden), change(model.head(hidden)))


def no_image(logits: Tensor) -> Tensor:
    raise RuntimeError("no image")


def test_a_plain_head_is_taken_as_it_is_and_one_that_does_more_or_cannot_be_asked_is_refused(refused: Refused) -> None:
    capped = {"final_logit_softcapping": 30.0}
    for model in (Model(lambda logits: logits, **capped), Model(no_image)):
        assert output_head(model, model.body) is model.head
    for model, words in (
        (Model(lambda logits: logits.abs()), "does more than multiply, cap or scale"),
        (Model(no_image, **capped), "final_logit_softcapping) and cannot be asked how: RuntimeError"),
    ):
        refused(words, output_head, model, model.body)
