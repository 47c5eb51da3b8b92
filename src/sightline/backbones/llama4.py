"""Llama 4: tiles in rows with separators between them, the whole picture last, a projector outside of the features."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from sightline.backbones.base import BACKBONES, as_dtype
from sightline.backbones.general import PIXELS, General, rows
from sightline.device.work import on_device


@BACKBONES.register("llama4")
class Llama4(General):
    """The general route, except that what the model calls image features is what its tower makes.

    Every tile is shuffled, a square of patches to a token; layers that attend in chunks count the slots that are left.
    """

    def features(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        given = as_dtype({PIXELS: on_device(inputs[PIXELS], self.language.device)}, self.language.dtype)
        seen = self.seeing.get_image_features(**given, vision_feature_select_strategy="default", return_dict=True)
        return self.model.multi_modal_projector(rows(seen.last_hidden_state)), ()
