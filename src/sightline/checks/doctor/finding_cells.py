"""Cells by ramps of any loaded model, those included whose class declares its cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sightline.backbones import Backbone
from sightline.backbones.found_cells import FoundCells, find_cells
from sightline.backbones.general import PIXELS, General, rows


def declares_cells(backbone: Backbone) -> bool:
    return not isinstance(backbone, General) or type(backbone).cells is not General.cells


def found_in(backbone: Backbone, size: tuple[int, int]) -> FoundCells | None:
    """Of an image of this (width, height), found anew whatever is remembered; None for a model without features."""
    if isinstance(backbone, General):
        return find_cells(size, backbone.image_inputs, lambda given: backbone.features(given)[0], backbone.tower_module)
    model: Any = getattr(backbone.model, "model", backbone.model)
    if not hasattr(model, "get_image_features"):
        return None

    def features(inputs: Mapping[str, Tensor]) -> Tensor:
        on_device = {name: value.to(backbone.language.device) for name, value in inputs.items()}
        on_device[PIXELS] = on_device[PIXELS].to(backbone.language.dtype)
        output = model.get_image_features(**on_device, return_dict=True)
        return rows(getattr(output, "pooler_output", output))

    return find_cells(size, backbone.image_inputs, features, backbone.model)
