"""Phi-4-multimodal: two grids of tokens with separators, and an adapter that is merged into the weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import Phi4MultimodalForCausalLM

from sightline.backbones import load_backbone, weight_digest
from sightline.backbones.loading import served_by
from sightline.backbones.phi4_multimodal import Phi4Multimodal
from sightline.checks.doctor import drawn_image, examined
from sightline.contract import check_backbone
from sightline.core.selection import Budget
from tests.refusals import Refused
from tests.unit.backbones.named import QUESTION, Zoo, general, photograph, prefix_of
from tests.zoo.stand_ins import stood_in_for

KIND = "phi4_multimodal"
SIZES = ((300, 200), (128, 384), (90, 60))
"""Two by two crops with padding below, one above the other without any, a single one."""


@pytest.fixture(autouse=True)
def torchvision() -> Iterator[None]:
    with stood_in_for(KIND):
        yield


@pytest.fixture
def folder(zoo: Zoo) -> Path:
    return zoo(KIND)


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / KIND))


def test_it_keeps_every_promise(folder: Path) -> None:
    check_backbone(Phi4Multimodal, folder, sizes=SIZES)
    check_backbone(Phi4Multimodal, folder, sizes=SIZES[:1], max_crops=2)


def test_every_check_of_doctor_passes(folder: Path) -> None:
    backbone = general(folder)
    found = examined(backbone, drawn_image().resize((320, 160)), KIND)
    assert [check.words for check in found if not check.passed] == []
    merged = {"images": "Phi4Multimodal", "language": "loop; vision-lora merged into the weights"}
    assert found.facts["served_by"] == served_by(backbone) == merged


def test_a_row_ends_with_its_separator_and_one_that_always_stays_stands_between_the_grids(folder: Path) -> None:
    plan = general(folder).plan(SIZES[1])
    assert plan.layout == ((48, 16), (16, 16))
    ends = [[16 * row, 16 * (row + 1)] for row in range(64)]
    assert plan.owners.tolist() == [*ends[:48], [0, plan.n], *ends[48:]]


def test_fewer_crops_meet_a_budget(folder: Path, refused: Refused) -> None:
    backbone = general(folder)
    fit = backbone.fit((520, 200), Budget(keep=0.6))
    assert backbone.under(fit.options).token_count((520, 200)) <= 0.6 * fit.usual_n < fit.usual_n
    refused("makes 512 visual tokens on Phi4Multimodal with the fewest crops", backbone.fitting, (128, 128), 500)


def test_a_long_prompt_changes_no_short_one_beside_it(copied: Path) -> None:
    """Frequencies of its positions are others beyond the length that it was first trained on, as published."""
    file = copied / "config.json"
    config = json.loads(file.read_text())
    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0 + place for place in range(8)]}
    rope = {**config["rope_parameters"], "rope_type": "longrope", "original_max_position_embeddings": 400, **factors}
    file.write_text(json.dumps({**config, "original_max_position_embeddings": 400, "rope_parameters": rope}))
    backbone, image = general(copied), photograph(*SIZES[0])
    assert "loop" in served_by(backbone)["language"]
    (encoded,) = backbone.encode([backbone.preprocess(image)])
    prompt = backbone.prompt(QUESTION, "EXIT", (" yes", " no"))
    few, everything = torch.arange(0, encoded.n, 8), torch.arange(encoded.n)
    both = [prefix_of(backbone, encoded, prompt, kept, "compact") for kept in (few, everything)]
    assert both[0].embeds.shape[0] < 400 < both[1].embeds.shape[0]
    together = backbone.language.launch(both).nll.read()
    alone = torch.cat([backbone.language.launch([prefix]).nll.read() for prefix in both])
    assert (together - alone).abs().max() < 1e-4
    asked = backbone.processor(text=[backbone.render(QUESTION, None)], images=[image], return_tensors="pt")
    bare = prefix_of(backbone, encoded, backbone.prompt(QUESTION, "EXIT"), everything)
    with torch.no_grad():
        theirs = adapted(copied)(**asked).logits[0]
    assert (backbone.language.prefix_logits(bare) - theirs).abs().max() < 1e-4


def test_a_template_that_takes_texts_is_given_the_image_as_published(copied: Path) -> None:
    (copied / "chat_template.jinja").write_text(
        "{% for turn in messages %}{{ '<|' + turn['role'] + '|>' + turn['content'] + '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    image = general(copied).placeholder
    assert general(copied).render("What is it?", None) == f"<|user|>{image}What is it?<|end|><|assistant|>"


# The adapter: held against the unmodified model whose layers add what the adapter makes of their input.


def adapted(folder: Path) -> Any:
    """Attention step by step, as published: a fused kernel is told that the tower sees only backwards."""
    model = Phi4MultimodalForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    stored = load_file(folder / "vision-lora" / "adapter_model.safetensors")

    def adds(low: Tensor, high: Tensor) -> Callable[..., Tensor]:
        return lambda layer, given, made: made + 2 * given[0] @ low.T @ high.T  # alpha 8, r 4

    for name in stored:
        place, part, _ = name.removeprefix("base_model.model.").rsplit(".", 2)
        if part == "lora_A":
            model.get_submodule(place).register_forward_hook(adds(stored[name], stored[name.replace("_A", "_B")]))
    return model


@torch.no_grad()
@pytest.mark.parametrize("size", SIZES)
def test_logits_are_those_of_the_model_with_its_adapter_beside_its_layers(folder: Path, size: tuple[int, int]) -> None:
    backbone, image = general(folder), photograph(*size)
    prompt = backbone.prompt(QUESTION, "EXIT")
    (encoded,) = backbone.encode([backbone.preprocess(image)])
    ours = backbone.language.prefix_logits(prefix_of(backbone, encoded, prompt, torch.arange(encoded.n)))
    asked = backbone.processor(text=[backbone.render(QUESTION, None)], images=[image], return_tensors="pt")
    theirs = adapted(folder)(**asked).logits[0]
    assert (ours - theirs).abs().max() < 1e-4
    plain = Phi4MultimodalForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    assert (plain(**asked).logits[0] - theirs).abs().max() > 1, "without the adapter it is another model"


def test_weights_are_rounded_once(folder: Path) -> None:
    backbone = load_backbone(str(folder), dtype="bfloat16", device="cpu")
    stored = load_file(folder / "vision-lora" / "adapter_model.safetensors")
    plain = load_file(folder / "model.safetensors")["model.layers.1.mlp.down_proj.weight"]
    low, high = (stored[f"base_model.model.model.layers.1.mlp.down_proj.lora_{part}.weight"] for part in "AB")
    layer = backbone.model.get_submodule("model.layers.1.mlp.down_proj")
    assert isinstance(layer, nn.Linear)
    torch.testing.assert_close(layer.weight, (plain.bfloat16().float() + 2 * high @ low).bfloat16(), atol=0, rtol=0)


def test_the_adapter_belongs_to_the_weights_and_another_one_does_not(copied: Path) -> None:
    before, adapter = weight_digest(copied), copied / "vision-lora" / "adapter_model.safetensors"
    shutil.copytree(copied / "vision-lora", copied / "speech-lora")
    assert weight_digest(copied) == before
    save_file({name: 2 * value for name, value in load_file(adapter).items()}, adapter)
    assert weight_digest(copied) != before


def test_a_folder_without_its_adapter_or_with_one_of_another_kind_or_model_is_refused(
    copied: Path, refused: Refused
) -> None:
    settings, weights = (copied / "vision-lora" / f"adapter_{name}" for name in ("config.json", "model.safetensors"))
    kind, stored = json.loads(settings.read_text()), load_file(weights)
    for changed, about in (({"use_dora": True}, "it has use_dora"), ({"r": None}, "it lacks r")):
        settings.write_text(json.dumps({**kind, **changed}))
        refused(about, load_backbone, str(copied), device="cpu")
    settings.write_text(json.dumps(kind))
    name = "base_model.model.model.layers.9.mlp.down_proj.lora_A.weight"
    save_file({**stored, name: torch.zeros(4, 64)}, weights)
    refused("vision-lora does not fit the model", load_backbone, str(copied), device="cpu")
    weights.unlink()
    refused("has no vision-lora/adapter_model.safetensors", load_backbone, str(copied), device="cpu")
