"""Cells found by ramps and gradients are those that architectures declare, and those that others imply."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from sightline.backbones import ImageOptions, load_backbone
from sightline.backbones.found_cells import find_cells
from sightline.backbones.general import General
from sightline.backbones.images import Pixels
from sightline.backbones.towered import Towered
from sightline.geometry.cells import Cells, grid_cells, tile_cells, token_blocks
from tests.zoo import build

PIXEL = 1.0
"""How far a found edge may be from a declared one, in pixels of the source."""
OPTIONS: dict[str, dict[str, int]] = {"llava": {}, "qwen3vl": {"max_pixels": 100352}, "internvl": {"max_tiles": 4}}
"""Crops, patches that merge, tiles with a thumbnail; as small as shows it."""


def difference(found: Cells, declared: Cells, size: tuple[int, int]) -> float:
    """In source pixels, the largest."""
    assert found.shape == declared.shape
    return float(np.abs((found - np.clip(declared, 0, 1)) * np.tile(size, 2)).max())


@pytest.fixture(scope="module", params=OPTIONS)
def backbone(request: pytest.FixtureRequest, data: Path) -> Towered:
    folder = str(data / "tiny" / request.param)
    backbone = load_backbone(folder, dtype="float32", device="cpu", options=OPTIONS[request.param])
    assert isinstance(backbone, Towered)
    return backbone


@pytest.mark.parametrize("size", [(640, 480), (333, 777), (1900, 1200), (57, 40), (300, 1500)])
def test_found_cells_are_the_declared_ones(backbone: Towered, size: tuple[int, int]) -> None:
    def prepared(image: Image.Image) -> dict[str, Tensor]:
        return backbone.image_processor(image, return_tensors="pt", **backbone.processor_arguments()).data

    def features(inputs: Mapping[str, Tensor]) -> Tensor:
        taken = {name: inputs[name] for name in ("pixel_values", "image_grid_thw") if name in inputs}
        return torch.cat(list(backbone.model.get_image_features(**taken).pooler_output)).flatten(0, -2)

    found = find_cells(size, prepared, features, backbone.model)
    declared, layout = backbone.cells_of(Pixels(torch.empty(0), backbone.patch_grid(*size[::-1]), size, 0.0))
    assert found.sourced.all()
    assert difference(found.cells, declared, size) < PIXEL
    assert token_blocks(found.cells, found.tiles) == layout


TILES = tile_cells((4, 3), 13, 2, 2)
WRITTEN_DOWN = {
    "qwen2_5_vl": grid_cells(6, 9),  # windows undone
    "glm4v": grid_cells(6, 9),
    "gemma3": grid_cells(4, 4),  # pooled
    "mistral3": grid_cells(6, 8),
    "llava_next": np.concatenate([grid_cells(4, 4), grid_cells(6, 8)]),  # stitched tiles behind the whole image
    "idefics3": TILES,  # the whole image last
    "internvl": TILES,
}
"""What the tiny checkpoints of other architectures make of an image of 640 x 480."""


@pytest.mark.parametrize("name", WRITTEN_DOWN)
def test_other_architectures_are_found_in_the_order_of_their_tokens(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    folder, host = str(build(name, tmp_path / name)), torch.device("cpu")
    backbone = General.load(folder, dtype=torch.float32, device=host, attention="sdpa", options=ImageOptions())
    found = backbone.found_cells((640, 480))
    assert difference(found.cells[found.sourced], WRITTEN_DOWN[name], (640, 480)) < 1
