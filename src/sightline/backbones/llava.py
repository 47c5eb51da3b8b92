"""LLaVA-1.5: a CLIP tower on a centre-cropped square, a two-layer projector, a Llama decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from sightline.backbones.base import BACKBONES, Backbone, Pixels
from sightline.backbones.positions import sequential_positions
from sightline.backbones.signals import class_token_signal, keeping
from sightline.engine.transfer import on_device
from sightline.geometry.cells import cropped_cells, grid_cells
from sightline.types import Encoded, PositionPolicy


@BACKBONES.register("llava")
class Llava(Backbone):
    """The processor crops the picture to a square, so cells cover that square only: a word outside it has no cell."""

    model_class = "LlavaForConditionalGeneration"
    image_processor_class = "CLIPImageProcessorPil"

    @property
    def image_token_id(self) -> int:
        return int(self.model.config.image_token_id)

    def assistant_content(self, text: str) -> Any:
        return [{"type": "text", "text": text}]

    def preprocess_inputs(self, image: Image.Image) -> dict[str, Tensor]:
        features = self.image_processor(images=image, return_tensors="pt")
        return {"pixel_values": features["pixel_values"]}

    @property
    def side(self) -> int:
        vision = self.model.config.vision_config
        return int(vision.image_size) // int(vision.patch_size)

    @property
    def vision_blocks(self) -> Any:
        return self.model.model.vision_tower.encoder.layers

    def vision(self, batch: Sequence[Pixels], keep: frozenset[int]) -> list[Encoded]:
        pixels = on_device(torch.cat([item.inputs["pixel_values"] for item in batch]), self.language.device)
        with keeping(self.vision_blocks, keep) as kept:
            features = self.model.model.get_image_features(
                pixels.to(self.language.dtype), return_dict=True
            ).pooler_output
        layout = (self.side, self.side)
        return [
            Encoded(
                tokens=tokens,
                deepstack=(),
                cells=self._cells(item.size),
                layout=(layout,),
                captured={f"hidden:{index}": kept[f"hidden:{index}"][i] for index in keep},
            )
            for i, (item, tokens) in enumerate(zip(batch, features, strict=True))
        ]

    def serves(self, name: str) -> str | None:
        if name.startswith(("vision.", "lm.", "clip.")):
            return None
        return super().serves(name)

    def vision_signal(self, name: str, encoded: Encoded) -> Tensor:
        heads = int(self.model.config.vision_config.num_attention_heads)
        return class_token_signal(name, dict(encoded.captured), self.vision_blocks, heads, "layer_norm1")

    def clip_states(self, encoded: Encoded) -> Tensor:
        normed: Tensor = self.model.model.vision_tower.post_layernorm(self.vision_signal("vision.hidden@-2", encoded))
        return normed

    def merge_sources(self, encoded: Encoded) -> Tensor:
        layer = int(self.model.config.vision_feature_layer)
        rows = encoded.captured[f"hidden:{layer if layer >= 0 else len(self.vision_blocks) + 1 + layer}"]
        return torch.cat([rows[1:], rows[:1]])

    def project(self, hidden: Tensor) -> Tensor:
        projected: Tensor = self.model.model.multi_modal_projector(hidden)
        return projected

    def _cells(self, size: tuple[int, int]) -> Any:
        if self.options.crop_blind:
            return grid_cells(self.side, self.side)
        edge = int(self.image_processor.size["shortest_edge"])
        crop = self.image_processor.crop_size
        return cropped_cells(self.side, self.side, size, edge, (int(crop["width"]), int(crop["height"])))

    def visual_positions(
        self, encoded: Encoded, anchors: Tensor, start: int, policy: PositionPolicy
    ) -> tuple[Tensor, int | Tensor]:
        return sequential_positions(encoded.n, anchors, start, policy)
