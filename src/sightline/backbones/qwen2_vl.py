"""Qwen2-VL and Qwen2.5-VL: native resolution, 2x2 patch merging, three-axis rotary positions."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sightline.backbones.base import BACKBONES
from sightline.backbones.general import GRIDS, General
from sightline.backbones.general import PIXELS as VALUES
from sightline.backbones.images import (
    Grid,
    ImageOptions,
    Normalisers,
    Pixels,
    image_bytes,
    largest_within,
    made_on,
    option,
    patch_values,
    processor_table,
    resized_for,
)
from sightline.backbones.processors import image_inputs
from sightline.backbones.prompting import Layout
from sightline.backbones.signals import pixels_of_tokens, with_pixels_of
from sightline.core.prefix import Encoded
from sightline.core.selection import PIXELS
from sightline.device.work import on_device
from sightline.errors import SightlineError
from sightline.geometry.cells import Cells, grid_cells, window_places

TRIED = (150, 97)
"""(width, height) of the image on which a processor is tried: it has to be resized in both directions."""

# Processors that keep an image's proportions: it is resized to whole cells, as many as bounds on its pixels allow.


@dataclass(frozen=True)
class PixelBounds(ImageOptions):
    min_pixels: int | None = option(None, "Fewest pixels of the resized image.", least=1)
    max_pixels: int | None = option(None, "Most pixels of the resized image.", least=1)


class NativeResolution(General):
    """One grid of tokens over the whole image, each made from merge x merge patches that lie together in the tower.

    Positions have three axes (time, row, column), so kept tokens go on knowing their place. What is left to say is how
    the processor resizes, and in which order the tower takes the patches if not as they come.
    """

    image_options = PixelBounds
    options: PixelBounds
    paper_positions = "preserve"
    fixed_tokens = None

    @abstractmethod
    def resized(self, size: tuple[int, int], low: int, high: int) -> tuple[int, int]:
        """(width, height) that the processor makes of an image of this (width, height), between bounds as it counts."""

    @property
    def counted(self) -> int:
        """How many times the processor counts each pixel."""
        return 1

    @property
    def factor(self) -> int:
        """Pixels along the side of a token's cell in the resized image."""
        return int(self.image_processor.patch_size) * self.merge

    @property
    def merge(self) -> int:
        return int(self.image_processor.merge_size)

    @property
    def token_pixels(self) -> int:
        return self.factor**2

    def bounds(self) -> tuple[int, int]:
        """Fewest and most pixels of the resized image, as the processor counts them."""
        size, options, counted = self.image_processor.size, self.options, self.counted
        low = size["shortest_edge"] if options.min_pixels is None else options.min_pixels * counted
        high = size["longest_edge"] if options.max_pixels is None else options.max_pixels * counted
        return int(low), int(high)

    def processor_arguments(self) -> dict[str, Any]:
        low, high = self.bounds()
        return {"size": {"shortest_edge": low, "longest_edge": high}}

    def shown_size(self, size: tuple[int, int]) -> tuple[int, int]:
        return self.resized(size, *self.bounds())

    def token_grid(self, size: tuple[int, int]) -> tuple[int, int]:
        """(rows, columns) of tokens for an image of this (width, height)."""
        width, height = self.shown_size(size)
        return height // self.factor, width // self.factor

    def fitting(self, size: tuple[int, int], k: int) -> PixelBounds:
        """The most pixels that make at most k tokens; to fewer than those a small image is not enlarged either."""
        fewest, counted = self.bounds()[0], self.counted

        def tokens(most: int) -> int:
            high = most * counted
            width, height = self.resized(size, min(fewest, high), high)
            return width * height // self.token_pixels

        width, height = self.shown_size(size)
        most = largest_within(tokens, k, 1, width * height + 1)
        low = self.options.min_pixels if fewest <= most * counted else most
        return replace(self.options, min_pixels=low, max_pixels=most)

    def cells(self, size: tuple[int, int], inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        rows, columns = self.token_grid(size)
        patches = tuple(inputs["image_grid_thw"][0].tolist())
        if patches != (1, rows * self.merge, columns * self.merge):
            raise SightlineError(
                f"{type(self).__name__}: the processor makes {patches[1]} x {patches[2]} patches of an image of "
                f"{size[0]} x {size[1]}, its settings promise {rows * self.merge} x {columns * self.merge}; are all of "
                "its steps switched on?"
            )
        return grid_cells(rows, columns), torch.ones(rows * columns, dtype=torch.bool), ((rows, columns),)

    def token_rows(self, size: tuple[int, int]) -> Tensor:
        """(N, merge * merge): the patches of a token follow one another, tokens row by row."""
        rows, columns = self.token_grid(size)
        return torch.arange(rows * columns * self.merge**2).view(rows * columns, -1)

    def serves(self, name: str) -> str | None:
        return None if name == PIXELS else super().serves(name)

    # What the processor does is known: its patches are cut where the model lives, and nothing is asked per size.

    @cached_property
    def knows_processor(self) -> bool:
        """Whether the checkpoint's processor makes of an image, to the bit and the id, what we make of it."""
        noise = np.random.default_rng(0).integers(0, 256, (*TRIED[::-1], 3), dtype=np.uint8)
        try:
            processed = self.processed(Image.fromarray(noise))
            theirs, ids = image_inputs(processed), self.written(processed).ids
            grid = self.patch_grid(TRIED)
            ours = self._cut(torch.from_numpy(noise), grid)
        except Exception:  # whatever is wrong with the processor is said where it is used
            return False
        return (
            theirs.keys() == {VALUES, GRIDS}
            and theirs[GRIDS].tolist() == [list(grid)]
            and torch.equal(theirs[VALUES], ours)
            and set(ids) == {self.image_token_id}
            and len(ids) * self.merge**2 == len(ours)
        )

    def patch_grid(self, size: tuple[int, int]) -> Grid:
        rows, columns = self.token_grid(size)
        return 1, rows * self.merge, columns * self.merge

    @cached_property
    def normalisers(self) -> Normalisers:
        return Normalisers(processor_table(self.image_processor))

    def _cut(self, image: Tensor, grid: Grid) -> Tensor:
        """(patches, values) of (H, W, 3 or 4) bytes, on the device that they are on."""
        height, width = image.shape[:2]
        values = patch_values(self.image_processor, (height, width), grid, self.normalisers, image.device)
        return values(image[..., :3])

    def written_for(self, size: tuple[int, int]) -> tuple[tuple[int, ...], dict[str, Tensor]]:
        if not self.knows_processor:
            return super().written_for(size)
        grid = self.patch_grid(size)
        return (self.image_token_id,) * (math.prod(grid) // self.merge**2), {GRIDS: torch.tensor([grid])}

    def prepared(self, image: Image.Image, into: Tensor | None) -> tuple[Tensor, Grid, Mapping[str, Tensor]]:
        """All of it for a model on the CPU or a very large image, else no more than its bytes."""
        if not self.knows_processor:
            return super().prepared(image, into)
        device, grid = made_on(self.language.device, image.size), self.patch_grid(image.size)
        data = image_bytes(image, device, into)
        if device.type == "cpu":
            data = self._cut(data, grid)
        return data, grid, {GRIDS: torch.tensor([grid])}

    def feature_inputs(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """With what the tower would work out of the grids on the device, image by image, and wait for."""
        return {**super().feature_inputs(inputs), **self.grid_inputs(inputs[GRIDS].cpu())}

    def grid_inputs(self, grids: Tensor) -> dict[str, Tensor]:
        """From (B, 3) grids on the host, by the names that the tower takes it by."""
        from transformers import vision_utils

        return {"position_ids": self.to_device(vision_utils.get_vision_position_ids(grids, self.merge))}

    def to_device(self, values: Tensor) -> Tensor:
        return on_device(values, self.language.device)

    def vision(self, batch: Sequence[Pixels], needs: frozenset[str]) -> list[Encoded]:
        device = self.language.device
        batch = [
            replace(item, data=self._cut(item.data.to(device, non_blocking=True), item.grid))
            if item.data.dtype == torch.uint8
            else item
            for item in batch
        ]
        encoded = super().vision(batch, needs - {PIXELS})
        return with_pixels_of(encoded, batch, device) if PIXELS in needs else encoded

    def vision_signal(self, name: str, encoded: Encoded) -> Tensor:
        if name == PIXELS:
            return pixels_of_tokens(encoded.captured[PIXELS], encoded.layout)
        return super().vision_signal(name, encoded)


@BACKBONES.register("qwen2_vl")
class Qwen2VL(NativeResolution):
    """Every block of the tower attends to the whole image; there is no class token."""

    def resized(self, size: tuple[int, int], low: int, high: int) -> tuple[int, int]:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        with resized_for(type(self).__name__):
            height, width = smart_resize(size[1], size[0], factor=self.factor, min_pixels=low, max_pixels=high)
        return width, height

    def grid_inputs(self, grids: Tensor) -> dict[str, Tensor]:
        """Sizes of images, and the ends of their patches, are read as plain numbers: they stay where that is free."""
        from transformers import vision_utils

        return {
            **super().grid_inputs(grids),
            GRIDS: grids,
            "cu_seqlens": vision_utils.get_vision_cu_seqlens(grids),
        }


@BACKBONES.register("qwen2_5_vl")
class Qwen25VL(Qwen2VL):
    """Most blocks attend within windows, ``fullatt_block_indexes`` name those that attend to the whole image.

    All blocks see the tokens window by window; the model itself puts them back row by row behind the merger. So the
    attention that a token receives is, in most blocks, that of its window: it adds up to 1 over each window's patches.
    """

    def grid_inputs(self, grids: Tensor) -> dict[str, Tensor]:
        from transformers import vision_utils

        config = self.model.config.vision_config
        order, ends = vision_utils.get_vision_window_index(grids, self.merge, config.window_size, config.patch_size)
        return {**super().grid_inputs(grids), "window_index": self.to_device(order), "cu_window_seqlens": ends}

    def token_rows(self, size: tuple[int, int]) -> Tensor:
        config = self.model.config.vision_config
        side = int(config.window_size) // int(config.spatial_merge_size) // int(config.patch_size)
        return super().token_rows(size)[torch.from_numpy(window_places(*self.token_grid(size), side))]
