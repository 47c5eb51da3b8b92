"""LLaVA-NeXT (LLaVA-1.6): a CLIP tower on the whole picture and on up to four tiles of it, stitched together."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.backbones.base import BACKBONES
from sightline.backbones.signals import split_name
from sightline.backbones.stitched_tiles import StitchedTiles
from sightline.core.prefix import Encoded


@BACKBONES.register("llava_next")
class LlavaNext(StitchedTiles):
    """Every tile has a class token of its own; that of the base picture stands for the image."""

    class_token = True

    def serves(self, name: str) -> str | None:
        """The tower is CLIP's, whose own projection can be put behind it."""
        kind, _ = split_name(name)
        tower = str(self.model.config.vision_config.model_type)
        return None if kind.startswith("clip.") and tower.startswith("clip") else super().serves(name)

    def clip_states(self, encoded: Encoded) -> Tensor:
        normed: Tensor = self.vision_tower.post_layernorm(self.vision_signal("vision.hidden@-2", encoded))
        return normed

    def merge_sources(self, encoded: Encoded) -> Tensor:
        layer = int(self.model.config.vision_feature_layer)
        of_image = self.vision_signal(f"vision.cls@{layer}", encoded)
        return torch.cat([self.vision_signal(f"vision.hidden@{layer}", encoded), of_image[None]])

    def project(self, hidden: Tensor) -> Tensor:
        projected: Tensor = self.body.multi_modal_projector(hidden)
        return projected
