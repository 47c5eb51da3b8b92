"""Granite 4 Vision: LLaVA-NeXT's tiles, whose features are added before several layers of the language model."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from sightline.backbones.base import BACKBONES, as_dtype
from sightline.backbones.general import General, rows
from sightline.device.work import on_device
from sightline.errors import SightlineError


@BACKBONES.register("granite4_vision")
class Granite4Vision(General):
    """The general route, except that features come as pairs of a layer and what is added before it.

    The model itself embeds an image as zeros. Here its tokens are what the first layer is handed, divided by what the
    decoder multiplies embeddings with; the other layers' are DeepStack levels.
    """

    def features(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        given = {name: on_device(value, self.language.device) for name, value in inputs.items()}
        output = self.seeing.get_image_features(**as_dtype(given, self.language.dtype))
        added = {layer: rows(features) for layer, features in output.deepstack_features}
        if 0 not in added:
            raise SightlineError(f"{self.title} hands its first layer no image features, so it has no tokens to choose")
        tokens = added.pop(0) / self.text_model.config.embedding_multiplier
        return tokens, tuple(added.get(layer, tokens[:, :0]) for layer in range(1, max(added, default=0) + 1))
