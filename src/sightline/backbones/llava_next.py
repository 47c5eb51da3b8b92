"""LLaVA-NeXT (LLaVA-1.6): a tower on the whole picture and on up to four tiles of it, stitched together."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.backbones.base import BACKBONES
from sightline.backbones.llava import MERGED, reads_others
from sightline.backbones.signals import split_name
from sightline.backbones.stitched_tiles import StitchedTiles
from sightline.core.prefix import Encoded


@BACKBONES.register("llava_next")
class LlavaNext(StitchedTiles):
    """The tower is CLIP's as published, SigLIP's in Granite Vision, which has no class token.

    Of CLIP's every tile has a class token of its own; that of the base picture stands for the image.
    """

    def serves(self, name: str) -> str | None:
        """Behind a tower of CLIP's its own projection can be put."""
        kind, _ = split_name(name)
        tower = str(self.model.config.vision_config.model_type)
        return None if kind.startswith("clip.") and tower.startswith("clip") else super().serves(name)

    def clip_states(self, encoded: Encoded) -> Tensor:
        normed: Tensor = self.vision_tower.post_layernorm(self.vision_signal("vision.hidden@-2", encoded))
        return normed

    def unprojected(self) -> str | None:
        return reads_others(self.model.config)

    def merge_sources(self, encoded: Encoded) -> Tensor:
        states = self.vision_signal(f"vision.hidden@{MERGED}", encoded)
        if not self.class_token:
            return states
        return torch.cat([states, self.vision_signal(f"vision.cls@{MERGED}", encoded)[None]])

    def project(self, hidden: Tensor) -> Tensor:
        projected: Tensor = self.body.multi_modal_projector(hidden)
        return projected
