"""Checkpoints that the file of their type was not written for, Pixtral for one: the general route serves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sightline.answering.materialise import materialise
from sightline.backbones import load_backbone
from sightline.backbones.base import model_logits
from sightline.backbones.general import General
from sightline.backbones.llava import Llava
from sightline.backbones.loading import Served, backbone_class, options_for, served_by
from sightline.checks.doctor import drawn_image, examined
from sightline.core.selection import Selection
from sightline.core.span import KeptSpan
from sightline.geometry.cells import grid_cells
from tests.unit.backbones.named import QUESTION, TARGET, general, photograph
from tests.zoo import NAMED
from tests.zoo.building import write
from tests.zoo.specimen import Species
from tests.zoo.wild import species_of


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
