"""Pixtral is a checkpoint of LLaVA's type with another tower and processor: the general route serves it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sightline.answering.materialise import materialise
from sightline.backbones.general import General
from sightline.backbones.llava import Llava
from sightline.backbones.loading import backbone_class, options_for
from sightline.backbones.served import Served
from sightline.backbones.unmodified import model_logits
from sightline.core.selection import Selection
from sightline.core.span import KeptSpan
from sightline.geometry.cells import grid_cells
from tests.unit.backbones.named import QUESTION, TARGET, general, photograph
from tests.zoo import NAMED
from tests.zoo.building import write


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
