"""Qwen3-VL: native resolution, 2x2 patch merging, DeepStack features, three-axis rotary positions."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import linear

from sightline.backbones.attention import ends_for
from sightline.backbones.base import BACKBONES
from sightline.backbones.images import Grid, Pixels, largest_within, option, patch_values, resized_for
from sightline.backbones.qwen2_vl import PixelBounds
from sightline.backbones.signals import CLASS_KINDS, ROWS, as_captured
from sightline.backbones.towered import Tower, Towered
from sightline.core.prefix import Encoded
from sightline.core.selection import PositionPolicy, split_name
from sightline.device.work import on_device
from sightline.geometry.cells import grid_cells
from sightline.selectors.heads import rotate


@dataclass(frozen=True)
class Qwen3VLOptions(PixelBounds):
    jpeg_quality: int | None = option(
        None, "Re-encode the image as JPEG of this quality before all else.", least=1, most=100
    )
    first_resize_factor: int | None = option(
        None, "Resize to multiples of this many pixels before the processor resizes again.", least=1
    )

    artifact: ClassVar[Mapping[str, Any]] = {
        "min_pixels": 802816,
        "max_pixels": 802816,
        "jpeg_quality": 85,
        "first_resize_factor": 28,
    }


@BACKBONES.register("qwen3_vl")
class Qwen3VL(Towered):
    """The whole image is resized, so cells are a plain grid; kept tokens carry (t, h, w) ids."""

    model_class = "Qwen3VLForConditionalGeneration"
    image_processor_class = "Qwen2VLImageProcessorPil"
    image_options = Qwen3VLOptions
    options: Qwen3VLOptions
    axes = 3
    packs_images = True
    class_tokens = 0
    system = "You are a helpful assistant."
    open_system = "You are a helpful OCR assistant. Answer with the shortest correct text only."
    paper_positions = "preserve"
    fixed_tokens = None

    def _area(self) -> tuple[int, int]:
        """Fewest and most pixels of the resized image."""
        size = self.image_processor.size
        return self.options.min_pixels or size["shortest_edge"], self.options.max_pixels or size["longest_edge"]

    @property
    def _factor(self) -> int:
        """Pixels along the side of a token's cell in the resized image."""
        return int(self.image_processor.patch_size) * int(self.image_processor.merge_size)

    def processor_arguments(self) -> dict[str, Any]:
        low, high = self._area()
        return {"size": {"shortest_edge": low, "longest_edge": high}}

    def altered(self, image: Image.Image) -> Image.Image:
        if self.options.jpeg_quality is not None:
            buffer = io.BytesIO()  # as if it had travelled as a JPEG data URL
            image.save(buffer, format="JPEG", quality=self.options.jpeg_quality)
            image = Image.open(buffer).convert("RGB")
        if self.options.first_resize_factor is not None:
            height, width = self.altered_size(image.height, image.width)
            image = image.resize((width, height), Image.Resampling.BICUBIC)
        return image

    def altered_size(self, height: int, width: int) -> tuple[int, int]:
        factor = self.options.first_resize_factor
        return (height, width) if factor is None else resized_size(height, width, factor, *self._area())

    def fitting(self, size: tuple[int, int], k: int) -> Qwen3VLOptions:
        """The most pixels that make at most k tokens: the processor itself shrinks the image, in one step.

        The fewest pixels, to which a small image is enlarged, are bounded alike.
        """
        width, height = size
        fewest, _ = self._area()

        def tokens(most: int) -> int:
            return math.prod(resized_size(height, width, self._factor, min(fewest, most), most)) // self._factor**2

        most = largest_within(tokens, k, 1, math.prod(self.shown_size(size)) + 1)
        return replace(self.options, min_pixels=min(fewest, most), max_pixels=most, first_resize_factor=None)

    def shown_size(self, size: tuple[int, int]) -> tuple[int, int]:
        edge = int(self.image_processor.patch_size)
        _, rows, columns = self.patch_grid(*self.altered_size(size[1], size[0]))
        return columns * edge, rows * edge

    def patch_grid(self, height: int, width: int) -> tuple[int, int, int]:
        edge = int(self.image_processor.patch_size)
        high, wide = resized_size(height, width, self._factor, *self._area())
        return 1, high // edge, wide // edge

    def pixel_pipeline(self, height: int, width: int, device: torch.device) -> Callable[[Tensor], Tensor]:
        grid = self.patch_grid(height, width)
        return patch_values(self.image_processor, (height, width), grid, self.normalisers, device)

    @property
    def vision_blocks(self) -> Any:
        return self.model.model.visual.blocks

    @property
    def merge(self) -> int:
        return int(self.model.config.vision_config.spatial_merge_size)

    @property
    def token_pixels(self) -> int:
        return (int(self.image_processor.patch_size) * self.merge) ** 2

    def tower(self, grids: Sequence[Grid]) -> Tower:
        """Positions are interpolated from the checkpoint's grid, once for these images."""
        from transformers import vision_utils

        vision = self.model.model.visual
        device, depth = self.language.device, len(vision.blocks)
        shapes = torch.tensor(grids)
        indices, weights = vision_utils.get_vision_interpolation_indices_and_weights(
            shapes,
            num_grid_per_side=vision.num_grid_per_side,
            mode=vision.interpolation_mode,
            align_corners=vision.interpolation_align_corners,
            spatial_merge_size=vision.spatial_merge_size,
        )
        positions = (vision.pos_embed(on_device(indices, device)) * on_device(weights, device)[:, :, None]).sum(1)
        ids = on_device(vision_utils.get_vision_position_ids(shapes, vision.spatial_merge_size), device)
        levels = [int(block) + 1 for block in vision.deepstack_visual_indexes]

        def embed(pixels: Tensor) -> Tensor:
            kernel = vision.patch_embed.proj
            if self.patch_products:
                patches = linear(pixels, kernel.weight.flatten(1), kernel.bias)
            else:
                patches = vision.patch_embed(pixels)
            return patches + positions.to(patches.dtype)  # type: ignore[no-any-return]

        def finish(states: Mapping[int, Tensor]) -> list[Tensor]:
            mergers = zip(levels, vision.deepstack_merger_list, strict=True)
            return [vision.merger(states[depth]), *(merger(states[level]) for level, merger in mergers)]

        lengths = [frames * rows * columns for frames, rows, columns in grids]
        arguments = {
            "cu_seqlens": ends_for(vision.config, lengths),
            "max_seqlen": 0,  # nobody reads it; given, it is not worked out from the bounds
            "position_embeddings": vision.rotary_pos_emb(positions, ids),
        }
        return Tower(vision.blocks, embed, frozenset([depth, *levels]), finish, arguments)

    def cells_of(self, pixels: Pixels) -> tuple[np.ndarray, tuple[tuple[int, int], ...]]:
        _, rows, columns = pixels.grid
        layout = (rows // self.merge, columns // self.merge)
        return grid_cells(*layout), (layout,)

    def captured(self, tower: Tower, states: Mapping[int, Tensor]) -> dict[str, Tensor]:
        """Attention is recomputed from hidden states with the rotary tables of the image."""
        kept = super().captured(tower, states)
        if kept:
            kept["cos"], kept["sin"] = tower.arguments["position_embeddings"]
        return kept

    def serves(self, name: str) -> str | None:
        kind, _ = split_name(name)
        if kind.startswith("clip."):
            return f"its vision tower is not the one of a CLIP checkpoint, so there is no {kind}"
        return f"its vision tower has no class token, so there is no {kind}" if kind in CLASS_KINDS else None

    def tower_rows(self, encoded: Encoded) -> dict[str, Tensor]:
        """The merged patches of a token, which lie together."""
        patches = torch.arange(encoded.n * self.merge**2, device=encoded.tokens.device)
        return {ROWS: patches.view(encoded.n, -1)}

    def attended(self, index: int, hidden: Tensor, encoded: Encoded) -> dict[str, Tensor]:
        """Turned by the rotary tables of the image."""
        block = self.vision_blocks[index]
        parts = block.attn.qkv(block.norm1(hidden)).view(len(hidden), 3, block.attn.num_heads, -1).permute(1, 2, 0, 3)
        cos, sin = (encoded.captured[table].float() for table in ("cos", "sin"))
        query, key = (rotate(part.float(), cos, sin) for part in parts[:2])
        return as_captured(index, query, key, parts[2], [len(hidden)])

    def visual_positions(
        self, encoded: Encoded, slots: Tensor, start: int, policy: PositionPolicy
    ) -> tuple[Tensor, int | Tensor]:
        """Row and column of each slot behind ``start``; text goes on behind the longer side of the grid.

        ``compact`` closes the gaps that pruning left: rows and columns are replaced by their rank among the kept
        ones, as if the image had been a smaller grid. Text ids stay equal on all three axes either way.
        """
        ((rows, columns),) = encoded.layout
        within = slots.clamp(0, rows * columns - 1)
        row, column = within // columns, within % columns
        following: int | Tensor = max(rows, columns) + start
        if policy == "compact":
            row, kept_rows = _ranks(row, rows)
            column, kept_columns = _ranks(column, columns)
            following = torch.maximum(kept_rows, kept_columns) + start
        return torch.stack([torch.zeros_like(row), row, column]) + start, following


def _ranks(values: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The rank of each of the values 0..size-1 among those that occur, and how many do (); shapes known beforehand."""
    upto = torch.zeros(size, dtype=torch.long, device=values.device).index_fill_(0, values, 1).cumsum(0)
    return upto[values] - 1, upto[-1]


def resized_size(height: int, width: int, factor: int, low: int, high: int) -> tuple[int, int]:
    """(height, width) as the nearest multiples of ``factor`` whose area lies within [low, high]."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    with resized_for("Qwen3-VL"):
        resized: tuple[int, int] = smart_resize(height, width, factor=factor, min_pixels=low, max_pixels=high)
    return resized
