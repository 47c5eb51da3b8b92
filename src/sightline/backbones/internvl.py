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
from sightline.backbones.signals import CLASS, CLASS_KINDS, ROWS, token_signal
from sightline.backbones.towered import Tower, Towered, patch_product
from sightline.core.prefix import Encoded
from sightline.core.selection import BLOCK_KINDS, PIXELS, block_index, split_name
from sightline.device.work import on_device
from sightline.errors import SightlineError
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
        tried = [replace(self.options, min_tiles=min(low, most), max_tiles=most) for most in range(1, high + 1)]
        counts = [(self.under(options).token_count(size), options) for options in tried]
        fitting = [count for count in counts if count[0] <= k]
        if not fitting:
            fewest = min(count for count, _ in counts)
            raise SightlineError(
                f"an image of {size[0]} x {size[1]} pixels makes {fewest} visual tokens on {type(self).__name__} with "
                f"the fewest tiles, and the budget is {k}; choose a larger budget"
            )
        return max(reversed(fitting), key=lambda count: count[0])[1]

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

    def vision_signal(self, name: str, encoded: Encoded) -> Tensor:
        """Of each tile by itself: a token's class attention is that of its tile's class token."""
        if name == PIXELS:
            return super().vision_signal(name, encoded)
        depth, tiles = len(self.vision_blocks), len(encoded.layout)
        rows = on_device(self.token_rows(tiles), encoded.tokens.device)
        captured = {**encoded.captured, ROWS: rows, CLASS: torch.tensor([0, -1])}
        if split_name(name)[0] in BLOCK_KINDS:
            index = block_index(name, depth)
            captured |= self._attended(index, captured[f"hidden:{index}"], tiles)
        return token_signal(name, captured, depth)

    def _attended(self, index: int, hidden: Tensor, tiles: int) -> dict[str, Tensor]:
        """What block ``index`` attends with, (H, R, d) each, from its (R, C) input: one sequence per tile."""
        block = self.vision_blocks[index]
        attention, states = block.attention, block.layernorm_before(hidden)
        parts = {
            "query": attention.q_norm(attention.q_proj(states)),
            "key": attention.k_norm(attention.k_proj(states)),
            "value": attention.v_proj(states),
        }
        heads = (len(hidden), attention.num_heads, -1)
        return {
            **{f"{name}:{index}": part.view(heads).transpose(0, 1) for name, part in parts.items()},
            f"bounds:{index}": torch.full((tiles,), len(hidden) // tiles),
            f"scale:{index}": torch.tensor(attention.scale),
        }

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
