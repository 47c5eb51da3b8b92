"""InternVL3.5: up to twelve square tiles plus a thumbnail of the whole picture, pixel shuffle, a Qwen3 decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sightline.backbones.base import BACKBONES, Backbone, Pixels
from sightline.backbones.positions import sequential_positions
from sightline.backbones.signals import split_name
from sightline.engine.transfer import on_device
from sightline.geometry.cells import tile_cells, tiled_canvas
from sightline.types import Encoded, PositionPolicy


@BACKBONES.register("internvl")
class InternVL(Backbone):
    """Tokens of a tile cover that tile, tokens of the thumbnail cover the whole picture again: cells overlap."""

    model_class = "InternVLForConditionalGeneration"
    image_processor_class = "GotOcr2ImageProcessorPil"

    @property
    def image_token_id(self) -> int:
        return int(self.model.config.image_token_id)

    def expand_placeholder(self, text: str) -> str:
        token = self.tokenizer.convert_ids_to_tokens(self.image_token_id)
        return text.replace(token, f"{self.tokenizer.start_image_token}{token}{self.tokenizer.end_image_token}")

    def _tile_limits(self) -> tuple[int, int]:
        low = self.options.min_tiles or int(self.image_processor.min_patches)
        high = self.options.max_tiles or int(self.image_processor.max_patches)
        return low, high

    def preprocess_inputs(self, image: Image.Image) -> dict[str, Tensor]:
        if self.options.tensor_resize:
            return {"pixel_values": self._tiles_by_tensor_resize(image)}
        low, high = self._tile_limits()
        features = self.image_processor(
            images=image, crop_to_patches=True, min_patches=low, max_patches=high, return_tensors="pt"
        )
        return {"pixel_values": features["pixel_values"]}

    def _tiles_by_tensor_resize(self, image: Image.Image) -> Tensor:
        """(tiles, 3, side, side): bicubic with antialiasing on uint8 tensors, row-major tiles, then the thumbnail."""
        processor = self.image_processor
        height, width = int(processor.size["height"]), int(processor.size["width"])
        columns, rows = self._canvas(image.size)
        picture = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]

        def resized(size: tuple[int, int]) -> Tensor:
            return torch.nn.functional.interpolate(picture, size=size, mode="bicubic", antialias=True)[0]

        canvas = resized((rows * height, columns * width))
        tiles = canvas.reshape(3, rows, height, columns, width).permute(1, 3, 0, 2, 4).flatten(0, 1)
        if len(tiles) > 1:
            tiles = torch.cat([tiles, resized((height, width))[None]])
        mean, spread = (torch.tensor(v)[:, None, None] for v in (processor.image_mean, processor.image_std))
        return (tiles * float(processor.rescale_factor) - mean) / spread

    @property
    def tile_grid(self) -> tuple[int, int]:
        """Rows and columns of tokens in one tile."""
        config = self.model.config
        ratio = float(config.downsample_ratio)
        (height, width), (patch_h, patch_w) = config.vision_config.image_size, config.vision_config.patch_size
        return int(height // patch_h * ratio), int(width // patch_w * ratio)

    @property
    def vision_blocks(self) -> Any:
        return self.model.model.vision_tower.encoder.layer

    def serves(self, name: str) -> str | None:
        kind, _ = split_name(name)
        if kind.startswith("lm."):
            return None
        return (
            f"each tile has its own class token and pixel shuffle mixes four patches, so there is no {kind} per token"
        )

    def vision(self, batch: Sequence[Pixels], keep: frozenset[int]) -> list[Encoded]:
        tiles = [item.inputs["pixel_values"] for item in batch]
        pixels = on_device(torch.cat(tiles), self.language.device).to(self.language.dtype)
        features = self.model.model.get_image_features(pixels, return_dict=True).pooler_output
        rows, columns = self.tile_grid
        encoded = []
        for item, part in zip(batch, features.split([len(t) for t in tiles]), strict=True):
            count = len(part)
            canvas = self._canvas(item.size)
            encoded.append(
                Encoded(
                    tokens=part.flatten(0, 1),
                    deepstack=(),
                    cells=tile_cells(canvas, count, rows, columns),
                    layout=((rows, columns),) * count,
                )
            )
        return encoded

    def _canvas(self, size: tuple[int, int]) -> tuple[int, int]:
        """(columns, rows) of tiles for a picture of this (width, height)."""
        tile = self.image_processor.size
        low, high = self._tile_limits()
        return tiled_canvas(size, (int(tile["width"]), int(tile["height"])), low, high)

    def visual_positions(
        self, encoded: Encoded, anchors: Tensor, start: int, policy: PositionPolicy
    ) -> tuple[Tensor, int | Tensor]:
        return sequential_positions(encoded.n, anchors, start, policy)
