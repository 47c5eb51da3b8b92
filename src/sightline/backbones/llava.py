"""LLaVA-1.5: a CLIP tower on a centre-cropped square, a two-layer projector, a Llama decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sightline.backbones.base import BACKBONES
from sightline.backbones.images import Grid, ImageOptions, Pixels, option, resizer
from sightline.backbones.signals import CLASS, MERGED, ROWS, as_captured, projector_mismatch
from sightline.backbones.towered import Tower, Towered, patch_product
from sightline.core.prefix import Encoded
from sightline.geometry.cells import cropped_cells, grid_cells, resized_shortest_edge


@dataclass(frozen=True)
class LlavaOptions(ImageOptions):
    crop_blind: bool = option(False, "Lay the token grid over the whole image although the processor crops it.")

    artifact: ClassVar[Mapping[str, Any]] = {"crop_blind": True}


@BACKBONES.register("llava")
class Llava(Towered):
    """The processor crops the image to a square, so cells cover that square only: a word outside it has no cell."""

    model_class = "LlavaForConditionalGeneration"
    image_processor_class = "CLIPImageProcessorPil"
    image_options = LlavaOptions
    options: LlavaOptions
    fixed_tokens = "its processor makes a square of one size of every image, large or small (576 tokens in LLaVA-1.5)"
    processor_steps = (*Towered.processor_steps, "do_center_crop")

    @classmethod
    def declines(cls, config: Mapping[str, Any], images: Mapping[str, Any]) -> str | None:
        """Pixtral and others are checkpoints of this type as well, with a tower that is not CLIP's."""
        tower = str((config.get("vision_config") or {}).get("model_type", "clip"))
        if not tower.startswith("clip"):
            return f"its vision tower is a {tower}, not CLIP's"
        if config.get("vision_feature_select_strategy", "default") != "default":
            return "its class token is one of the image's tokens"
        return super().declines(config, images)

    def assistant_content(self, text: str) -> Any:
        return [{"type": "text", "text": text}]

    def patch_grid(self, height: int, width: int) -> tuple[int, int, int]:
        return 1, self.side, self.side

    def pixel_pipeline(self, height: int, width: int, device: torch.device) -> Callable[[Tensor], Tensor]:
        """(1, 3, crop, crop): the shortest edge to its length, then the centre."""
        processor = self.image_processor
        wide, high = resized_shortest_edge((width, height), int(processor.size["shortest_edge"]))
        crop_wide, crop_high = int(processor.crop_size["width"]), int(processor.crop_size["height"])
        left, upper = (wide - crop_wide) // 2, (high - crop_high) // 2
        resize = resizer((height, width), (high, wide), processor.resample, device)
        normalise = self.normalisers.on(device)
        # Padding by less than nothing crops; a crop larger than the image pads with black.
        margins = (-left, crop_wide - wide + left, -upper, crop_high - high + upper)

        def values(image: Tensor) -> Tensor:
            return normalise(functional.pad(resize(image).permute(2, 0, 1)[None], margins))

        return values

    @property
    def side(self) -> int:
        vision = self.model.config.vision_config
        return int(vision.image_size) // int(vision.patch_size)

    @property
    def token_pixels(self) -> int:
        return int(self.model.config.vision_config.patch_size) ** 2

    @property
    def vision_blocks(self) -> Any:
        return self.model.model.vision_tower.encoder.layers

    @property
    def _feature_layers(self) -> list[int]:
        """Hidden states that the projector reads."""
        chosen = self.model.config.vision_feature_layer
        states = len(self.vision_blocks) + 1
        return [int(layer) % states for layer in ([chosen] if isinstance(chosen, int) else chosen)]

    @property
    def vision_depth(self) -> int:
        return max(self._feature_layers)

    def tower(self, grids: Sequence[Grid]) -> Tower:
        model = self.model.model
        vision, layers = model.vision_tower, self._feature_layers

        def embed(pixels: Tensor) -> Tensor:
            embeddings = vision.embeddings
            if not self.patch_products:
                return vision.pre_layrnorm(embeddings(pixels))  # type: ignore[no-any-return]
            patches = patch_product(embeddings.patch_embedding, pixels)
            rows = torch.cat([embeddings.class_embedding.expand(len(patches), 1, -1), patches], dim=1)
            return vision.pre_layrnorm(rows + embeddings.position_embedding.weight)  # type: ignore[no-any-return]

        def finish(states: Mapping[int, Tensor]) -> list[Tensor]:
            return [model.multi_modal_projector(torch.cat([states[layer][:, 1:] for layer in layers], dim=-1))]

        return Tower(vision.encoder.layers, embed, frozenset(layers), finish, {"attention_mask": None})

    def cells_of(self, pixels: Pixels) -> tuple[np.ndarray, tuple[tuple[int, int], ...]]:
        return self._cells(pixels.size), ((self.side, self.side),)

    def serves(self, name: str) -> str | None:
        if name.startswith(("vision.", "lm.", "clip.", "image.")):
            return None
        return super().serves(name)

    def tower_rows(self, encoded: Encoded) -> dict[str, Tensor]:
        """One for each token, behind the class token."""
        rows = torch.arange(1, encoded.n + 1, device=encoded.tokens.device)
        return {ROWS: rows[:, None], CLASS: torch.tensor([0, 0])}

    def attended(self, index: int, hidden: Tensor, encoded: Encoded) -> dict[str, Tensor]:
        block, heads = self.vision_blocks[index], int(self.model.config.vision_config.num_attention_heads)
        attention, states = block.self_attn, block.layer_norm1(hidden)
        query, key, value = (
            project(states).view(len(hidden), heads, -1).transpose(0, 1)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        return as_captured(index, query, key, value, [len(hidden)])

    def clip_states(self, encoded: Encoded) -> Tensor:
        normed: Tensor = self.model.model.vision_tower.post_layernorm(self.vision_signal("vision.hidden@-2", encoded))
        return normed

    def unprojected(self) -> str | None:
        return projector_mismatch(self.model.config)

    def merge_sources(self, encoded: Encoded) -> Tensor:
        of_image = self.vision_signal(f"vision.cls@{MERGED}", encoded)
        return torch.cat([self.vision_signal(f"vision.hidden@{MERGED}", encoded), of_image[None]])

    def project(self, hidden: Tensor) -> Tensor:
        projected: Tensor = self.model.model.multi_modal_projector(hidden)
        return projected

    def _cells(self, size: tuple[int, int]) -> Any:
        if self.options.crop_blind:
            return grid_cells(self.side, self.side)
        edge = int(self.image_processor.size["shortest_edge"])
        crop = self.image_processor.crop_size
        return cropped_cells(self.side, self.side, size, edge, (int(crop["width"]), int(crop["height"])))
