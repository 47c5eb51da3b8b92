"""InternVL3 and 3.5: up to twelve square tiles, a thumbnail of the whole image, pixel shuffle, a Qwen2 or 3 decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.backbones.base import BACKBONES
from sightline.backbones.images import Arithmetic, Grid, ImageOptions, Pixels, option, resizer, tensor_table
from sightline.backbones.signals import CLASS, CLASS_KINDS, ROWS, as_captured
from sightline.backbones.towered import Tower, Towered, patch_product
from sightline.core.prefix import Encoded
from sightline.core.selection import split_name
from sightline.device.work import on_device
from sightline.geometry.cells import merged_patches, tile_cells, tiled_canvas


@dataclass(frozen=True)
class InternVLOptions(ImageOptions):
    """The artifact asked for one to twelve tiles, as the published checkpoint's processor does by itself."""

    min_tiles: int | None = option(None, "Fewest tiles, the thumbnail not counted.", least=1)
    max_tiles: int | None = option(None, "Most tiles, the thumbnail not counted.", least=1)
    tensor_resize: bool = option(
        False, "Resize tensors, as the torchvision-backed processor does, instead of PIL images."
    )


@BACKBONES.register("internvl")
class InternVL(Towered):
    """Tokens of a tile cover that tile, tokens of the thumbnail cover the whole image again: cells overlap."""

    model_class = "InternVLForConditionalGeneration"
    image_processor_class = "GotOcr2ImageProcessorPil"
    image_options = InternVLOptions
    options: InternVLOptions
    fixed_tokens = None

    def expand_placeholder(self, text: str) -> str:
        token = self.tokenizer.convert_ids_to_tokens(self.image_token_id)
        return text.replace(token, f"{self.tokenizer.start_image_token}{token}{self.tokenizer.end_image_token}")

    def _tile_limits(self) -> tuple[int, int]:
        low = self.options.min_tiles or int(self.image_processor.min_patches)
        high = self.options.max_tiles or int(self.image_processor.max_patches)
        return low, high

    def processor_arguments(self) -> dict[str, Any]:
        low, high = self._tile_limits()
        return {"crop_to_patches": True, "min_patches": low, "max_patches": high}

    def patch_grid(self, height: int, width: int) -> tuple[int, int, int]:
        columns, rows = self._canvas((width, height))
        tile_high, tile_wide = self._tile_size()
        patch_high, patch_wide = self.model.config.vision_config.patch_size
        tiles = columns * rows
        return tiles + (tiles > 1), tile_high // int(patch_high), tile_wide // int(patch_wide)

    def fitting(self, size: tuple[int, int], k: int) -> InternVLOptions:
        """The most tiles whose canvas, thumbnail included, makes at most k tokens.

        Which canvas an image gets depends on its shape, so more tiles allowed may mean fewer used: all are tried, and
        of equally many tokens the widest choice of canvases wins.
        """
        low, high = self._tile_limits()
        tried = [replace(self.options, min_tiles=min(low, most), max_tiles=most) for most in range(high, 0, -1)]
        counts = {options: self.under(options).token_count(size) for options in tried}
        return self.most_within(size, k, counts, "with the fewest tiles")

    def shown_size(self, size: tuple[int, int]) -> tuple[int, int]:
        columns, rows = self._canvas(size)
        high, wide = self._tile_size()
        return columns * wide, rows * high

    def byte_values(self) -> Tensor:
        return tensor_table(self.image_processor) if self.options.tensor_resize else super().byte_values()

    def pixel_pipeline(self, height: int, width: int, device: torch.device) -> Callable[[Tensor], Tensor]:
        """(tiles, 3, side, side): the canvas cut into tiles, row by row, then a thumbnail unless there is one tile."""
        columns, rows = self._canvas((width, height))
        high, wide = self._tile_size()
        kind = int(self.image_processor.resample)
        arithmetic: Arithmetic = "torch" if self.options.tensor_resize else "pillow"
        whole = resizer((height, width), (rows * high, columns * wide), kind, device, arithmetic)
        small = resizer((height, width), (high, wide), kind, device, arithmetic)
        normalise = self.normalisers.on(device)

        def values(image: Tensor) -> Tensor:
            tiles = whole(image).reshape(rows, high, columns, wide, 3).permute(0, 2, 4, 1, 3).flatten(0, 1)
            if len(tiles) > 1:
                tiles = torch.cat([tiles, small(image).permute(2, 0, 1)[None]])
            return normalise(tiles)

        return values

    @property
    def tile_grid(self) -> tuple[int, int]:
        """Rows and columns of tokens in one tile."""
        config = self.model.config
        ratio = float(config.downsample_ratio)
        (height, width), (patch_h, patch_w) = config.vision_config.image_size, config.vision_config.patch_size
        return int(height // patch_h * ratio), int(width // patch_w * ratio)

    @property
    def token_pixels(self) -> int:
        """Of a tile or of the thumbnail: both are as large."""
        (height, width), (rows, columns) = self._tile_size(), self.tile_grid
        return (height // rows) * (width // columns)

    @property
    def vision_blocks(self) -> Any:
        return self.model.model.vision_tower.encoder.layer

    def serves(self, name: str) -> str | None:
        kind, _ = split_name(name)
        if kind.startswith("clip."):
            return f"each tile has its own class token and its tower is not the one of a CLIP checkpoint: no {kind}"
        if kind in CLASS_KINDS and kind != "vision.cls_attention":
            return f"each tile has its own class token, so there is no {kind} of the image"
        return None

    def tower_rows(self, encoded: Encoded) -> dict[str, Tensor]:
        """Of each tile by itself: a token's class attention is that of its tile's class token."""
        rows = on_device(self.token_rows(len(encoded.layout)), encoded.tokens.device)
        return {ROWS: rows, CLASS: torch.tensor([0, -1])}

    def attended(self, index: int, hidden: Tensor, encoded: Encoded) -> dict[str, Tensor]:
        """One sequence per tile."""
        block, tiles = self.vision_blocks[index], len(encoded.layout)
        attention, states = block.attention, block.layernorm_before(hidden)
        query, key, value = (
            states.view(len(hidden), attention.num_heads, -1).transpose(0, 1)
            for states in (
                attention.q_norm(attention.q_proj(states)),
                attention.k_norm(attention.k_proj(states)),
                attention.v_proj(states),
            )
        )
        return as_captured(index, query, key, value, [len(hidden) // tiles] * tiles, attention.scale)

    def token_rows(self, tiles: int) -> Tensor:
        """(N, m) rows of the tower that pixel shuffle makes each token of; every tile begins with a class token."""
        merge = round(1 / float(self.model.config.downsample_ratio))
        patches = torch.from_numpy(merged_patches(*self.tile_grid, merge))
        starts = torch.arange(tiles) * (patches.numel() + 1) + 1
        return (starts[:, None, None] + patches).flatten(0, 1)

    def tower(self, grids: Sequence[Grid]) -> Tower:
        model = self.model.model
        vision, config = model.vision_tower, model.config
        depth = len(vision.encoder.layer)
        layer = int(config.vision_feature_layer) % (depth + 1)
        first = 1 if config.vision_feature_select_strategy == "default" else 0

        def embed(pixels: Tensor) -> Tensor:
            embeddings = vision.embeddings
            if not self.patch_products:
                return embeddings(pixels)  # type: ignore[no-any-return]
            patches = patch_product(embeddings.patch_embeddings.projection, pixels)
            rows = torch.cat([embeddings.cls_token.expand(len(patches), -1, -1), patches], dim=1)
            if embeddings.position_embeddings is None:
                return rows
            return rows + embeddings.interpolate_pos_encoding(rows, *pixels.shape[-2:])  # type: ignore[no-any-return]

        def finish(states: Mapping[int, Tensor]) -> list[Tensor]:
            features = (vision.layernorm(states[depth]) if layer == depth else states[layer])[:, first:]
            tiles, side = features.shape[0], int(features.shape[1] ** 0.5)
            shuffled = model.pixel_shuffle(
                features.reshape(tiles, side, side, -1), scale_factor=config.downsample_ratio
            )
            return [model.multi_modal_projector(shuffled.reshape(tiles, -1, shuffled.shape[-1]))]

        return Tower(vision.encoder.layer, embed, frozenset([layer]), finish)

    def cells_of(self, pixels: Pixels) -> tuple[np.ndarray, tuple[tuple[int, int], ...]]:
        tiles = pixels.grid[0]
        return tile_cells(self._canvas(pixels.size), tiles, *self.tile_grid), (self.tile_grid,) * tiles

    def _canvas(self, size: tuple[int, int]) -> tuple[int, int]:
        """(columns, rows) of tiles for an image of this (width, height)."""
        high, wide = self._tile_size()
        return tiled_canvas(size, (wide, high), *self._tile_limits())

    def _tile_size(self) -> tuple[int, int]:
        """(height, width) of a tile in pixels."""
        size = self.image_processor.size
        return int(size["height"]), int(size["width"])
