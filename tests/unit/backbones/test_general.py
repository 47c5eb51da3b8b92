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

from sightline.answering.materialise import materialise
from sightline.backbones import load_backbone
from sightline.backbones.base import model_logits
from sightline.backbones.from_transformers import model_class, refusal
from sightline.backbones.general import General, seeing_part
from sightline.backbones.llava import Llava
from sightline.backbones.loading import Served, backbone_class, options_for, served_by
from sightline.backbones.trials import AdjustedHead, output_head, unlike_the_loop
from sightline.checks.doctor import drawn_image, examined
from sightline.core.selection import Selection
from sightline.core.span import KeptSpan
from sightline.errors import SightlineError
from sightline.geometry.cells import grid_cells
from tests.unit.backbones.named import QUESTION, TARGET, general, photograph
from tests.zoo import NAMED, build
from tests.zoo.building import build_wrapped, write
from tests.zoo.specimen import Species
from tests.zoo.wild import species_of

# Which types the general route is tried on, told from classes and settings.


@pytest.mark.parametrize("model_type", ["qwen2_vl", "deepseek_vl", "janus", "qwen2_5_omni_thinker"])
def test_features_may_be_made_by_the_model_or_by_the_one_inside(model_type: str) -> None:
    assert refusal(model_class(model_type)) is None


@pytest.mark.parametrize(
    ("model_type", "words"),
    [
        ("idefics", "no get_image_features"),
        ("florence2", "an encoder for the whole prompt"),
    ],
)
def test_a_type_that_cannot_be_tried_is_refused_with_the_reason(model_type: str, words: str) -> None:
    assert words in (refusal(model_class(model_type)) or "")


def test_pixels_under_another_name_are_refused_with_the_reason() -> None:
    class OtherPixels:
        config_class = SimpleNamespace(model_type="other_pixels")

        def get_image_features(self, images: object) -> None: ...

    assert "not made of pixel_values" in (refusal(OtherPixels) or "")


def test_the_part_that_sees_is_inside_where_it_can_be() -> None:
    inside = SimpleNamespace(get_image_features=print)
    assert seeing_part(SimpleNamespace(model=inside, get_image_features=print)) is inside
    outside = SimpleNamespace(model=SimpleNamespace(), get_image_features=print)
    assert seeing_part(outside) is outside


def test_a_type_without_fused_attention_is_loaded_with_the_plain_one(tmp_path: Path) -> None:
    backbone = load_backbone(str(build("got_ocr2", tmp_path / "got_ocr2")), device="cpu", attention="sdpa")
    assert backbone.model.config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("config", "words", "not_said"),
    [
        ({"model_type": "internvl_chat", "auto_map": {"AutoModel": "m.M"}}, ["auto_map", "InternVL3_5-8B-HF"], "newer"),
        ({"model_type": "kimi_vl", "auto_map": {"AutoModel": "m.M"}}, ["auto_map", "never run"], "newer"),
        ({"model_type": "phi4mm", "auto_map": {"AutoModel": "m.M"}}, ["multimodal-instruct@refs/pr/70"], "newer"),
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


@pytest.mark.parametrize("model_type", ["ernie4_5_vl_moe", "hunyuan_vl", "granite4_vision", "gemma4_e2b"])
def test_a_type_that_is_told_more_of_its_images_passes_every_check(zoo: Callable[[str], Path], model_type: str) -> None:
    """Experts that are told which tokens stand for an image; placeholders between marks, positions on four axes;
    features before single layers; layers that read ids once more."""
    backbone = general(zoo(model_type))
    assert [check.words for check in examined(backbone, drawn_image(), model_type) if not check.passed] == []
    assert backbone.axes == {"ernie4_5_vl_moe": 3, "hunyuan_vl": 4}.get(model_type, 1)


ASKING_FOR_PACKAGES = (
    "cohere2_vision", "fast_vlm", "gemma3n", "gemma4_unified", "inkling_mm_model", "kimi_k25", "lfm2_vl", "llama4",
    "minimax_m3_vl", "muse_glimmer", "perception_lm", "step3p7",
)  # fmt: skip
"""Their image processors exist for torchvision alone, or their towers in timm."""
OTHERWISE = ("pp_chart2table", "video_llava")
"""Placeholders that the template alone knows; pixel values by another name."""


@pytest.mark.parametrize("model_type", [*ASKING_FOR_PACKAGES, *OTHERWISE])
def test_a_type_that_needs_a_package_or_says_things_otherwise_passes_every_check(
    zoo: Callable[[str], Path], model_type: str
) -> None:
    backbone = general(zoo(model_type))
    found = examined(backbone, drawn_image().resize((320, 160)), model_type, methods=False)
    assert [check.words for check in found if not check.passed] == []


@pytest.mark.parametrize(("model_type", "beyond"), [("gemma3n", True), ("fast_vlm", True), ("perception_lm", False)])
def test_who_reads_far_beyond_its_cells_says_so(zoo: Callable[[str], Path], model_type: str, beyond: bool) -> None:
    backbone = general(zoo(model_type))
    assert ("convolutions read beyond them" in served_by(backbone)["images"]) == beyond
    assert backbone.no_cells is None
    ((side, other), *_) = backbone.plan((320, 160)).layout
    assert side == other > 1


@pytest.mark.skipif(find_spec("torchvision") is not None, reason="torchvision is installed")
def test_without_torchvision_such_a_type_is_refused_by_name(zoo: Callable[[str], Path]) -> None:
    folder = zoo("llama4")
    with pytest.raises(SightlineError, match="Llama4ImageProcessor needs torchvision, which is not installed"):
        load_backbone(str(folder), device="cpu")


# Checkpoints that the file of their type was not written for, Pixtral for one: the general route serves them.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    mistral = NAMED["mistral3"]
    config = {name: value for name, value in mistral.config.items() if name != "spatial_merge_size"}
    pixtral = replace(
        mistral,
        model_class="LlavaForConditionalGeneration",
        config={**config, "vision_feature_select_strategy": "full"},
        processor={**mistral.processor, "spatial_merge_size": 1},
    )
    return write(pixtral, tmp_path_factory.mktemp("pixtral"))


def test_it_takes_the_general_route_everywhere(folder: Path) -> None:
    backbone = general(folder)
    assert type(backbone) is General
    assert Served.by_description(folder).architecture == "General"
    assert options_for(folder).described() == {}
    assert backbone_class("llava") is Llava, "without a checkpoint the type alone decides"


def test_its_cells_and_logits_are_its_own(folder: Path) -> None:
    backbone, image = general(folder), photograph()
    (encoded,) = backbone.encode([backbone.preprocess(image)])
    assert encoded.layout == ((10, 15),)
    assert np.abs((encoded.cells - grid_cells(10, 15)) * np.tile(image.size, 2)).max() < 1
    prompt, everything = backbone.prompt(QUESTION, TARGET), torch.arange(encoded.n)
    assert encoded.separators is not None
    kept = KeptSpan.of(encoded.separators, everything, encoded.n)
    ours = materialise(backbone, encoded, prompt, Selection(everything), "preserve", kept)
    theirs = model_logits(backbone, image, (*prompt.head, *prompt.tail), len(prompt.head))
    assert (backbone.language.prefix_logits(ours) - theirs).abs().max() <= 1e-4


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
    failed = [check.words for check in examined(backbone, drawn_image().resize((320, 160)), kind) if not check.passed]
    assert failed == []


# Which decoders our loop runs as they run themselves.


def decoder(layers: int = 3, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 100, "head_dim": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = transformers.Qwen3Config(
        **sizes, **heads, num_hidden_layers=layers, **{"initializer_range": 0.2, **changes}
    )
    torch.manual_seed(0)
    return transformers.Qwen3Model._from_config(config, dtype=dtype, attn_implementation="sdpa")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_plain_decoder_is_run_by_the_loop(dtype: torch.dtype) -> None:
    made = decoder(dtype=dtype)
    assert unlike_the_loop(made, made, 1) is None


def test_rounding_does_not_pile_up_over_many_layers() -> None:
    """Over a hundred layers two kernels in bfloat16 end 9% of the largest value apart, though each differs by 1%."""
    made = decoder(layers=100, dtype=torch.bfloat16)
    assert unlike_the_loop(made, made, 1) is None


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


@pytest.mark.parametrize("change", [
    between_layers, lambda made: setattr(made, "__class__", Shifted), lambda made: setattr(made, "__class__", Scaled),
], ids=["between layers", "behind the last layer", "to the embeddings"])  # fmt: skip
def test_whatever_a_decoder_does_beside_its_layers_is_noticed(change: Callable[[Any], None]) -> None:
    made = decoder()
    change(made)
    assert "gives something else" in (unlike_the_loop(made, made, 1) or "")


def test_a_window_is_a_reason() -> None:
    made = decoder(use_sliding_window=True, sliding_window=2, max_window_layers=1)
    assert unlike_the_loop(made, made, 1) == "it has layers of type sliding_attention"


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


def test_a_plain_head_is_taken_as_it_is() -> None:
    model = Model(lambda logits: logits, final_logit_softcapping=30.0)
    assert output_head(model, model.body) is model.head


@pytest.mark.parametrize(("setting", "value", "change"), [
    ("final_logit_softcapping", 3.0, lambda logits: torch.tanh(logits / 3.0) * 3.0),
    ("logit_scale", 0.25, lambda logits: logits * 0.25),
    ("logits_scaling", 8.0, lambda logits: logits / 8.0),
])  # fmt: skip
def test_what_is_done_behind_it_is_done_too(setting: str, value: float, change: Any) -> None:
    model = Model(change, **{setting: value})
    head = output_head(model, model.body)
    assert isinstance(head, AdjustedHead)
    hidden = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(head(hidden), change(model.head(hidden)))


def test_a_cap_that_hardly_shows_is_not_left_out() -> None:
    """Small logits: scaled alone fits within what is allowed, scaled and capped fits better."""

    def change(logits: Tensor) -> Tensor:
        return torch.tanh(logits * 0.2 / 40.0) * 40.0

    model = Model(change, final_logit_softcapping=40.0, output_multiplier=0.2)
    head, hidden = output_head(model, model.body), 50 * torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(head(hidden), change(model.head(hidden)))


def test_anything_else_is_refused() -> None:
    model = Model(lambda logits: logits.abs())
    with pytest.raises(SightlineError, match="does more than multiply, cap or scale"):
        output_head(model, model.body)


def test_a_model_that_cannot_be_asked_is_refused_if_it_has_such_a_setting() -> None:
    def fails(logits: Tensor) -> Tensor:
        raise RuntimeError("no image")

    silent = Model(fails)
    assert output_head(silent, silent.body) is silent.head
    capped = Model(fails, final_logit_softcapping=30.0)
    with pytest.raises(SightlineError, match=r"final_logit_softcapping\) and cannot be asked how: RuntimeError"):
        output_head(capped, capped.body)
