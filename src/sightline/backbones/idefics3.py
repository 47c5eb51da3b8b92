"""Idefics3 and SmolVLM: tiles row by row, the whole picture last, text that announces each, pixel shuffle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.backbones.base import BACKBONES
from sightline.backbones.general import General
from sightline.backbones.images import ImageOptions, option
from sightline.backbones.prompting import Layout
from sightline.geometry.cells import Cells, merged_patches, tile_cells

Size = tuple[int, int]
MOST_PIXELS = 4096
"""Longest edge that the processor makes of any image before it cuts it."""


@dataclass(frozen=True)
class Idefics3Options(ImageOptions):
    longest_edge: int | None = option(
        None, "Longest edge of the resized image in pixels; it is cut into tiles of the tower's size.", least=1
    )


@BACKBONES.register("idefics3")
class Idefics3(General):
    """The image is stretched to whole tiles, so tiles are a plain grid, and the whole picture covers it once more.

    A tile is announced by text of its own, which stays as long as one of its tokens does.
    """

    image_options = Idefics3Options
    options: Idefics3Options
    fixed_tokens = None

    @property
    def tile(self) -> int:
        """Edge of a tile in pixels."""
        return int(self.image_processor.max_image_size["longest_edge"])

    @property
    def side(self) -> int:
        """Tokens along the edge of a tile."""
        return self.tile // int(self.model.config.vision_config.patch_size) // int(self.model.config.scale_factor)

    @property
    def token_pixels(self) -> int:
        """Of a tile or of the whole picture: both are as large."""
        return (int(self.model.config.vision_config.patch_size) * int(self.model.config.scale_factor)) ** 2

    def processor_arguments(self) -> dict[str, Any]:
        edge = self.options.longest_edge
        return {} if edge is None else {"size": {"longest_edge": edge}}

    def tiles(self, size: Size) -> Size:
        """(columns, rows) of tiles for an image of this (width, height).

        The longer edge gets the length asked for, the shorter one an even one, neither beyond 4,096 pixels; then the
        image is stretched to whole tiles, the shorter edge in proportion to the longer.
        """
        if not self.image_processor.do_image_splitting:
            return 1, 1
        width, height = scaled(size, int(self.options.longest_edge or self.image_processor.size["longest_edge"]))
        if size[0] >= size[1]:
            height += height % 2
        else:
            width += width % 2
        width, height = max(width, 1), max(height, 1)
        if max(width, height) > MOST_PIXELS:
            width, height = (max(edge, 1) for edge in scaled((width, height), MOST_PIXELS))
        width, height = scaled((width, height), math.ceil(max(width, height) / self.tile) * self.tile)
        return math.ceil(width / self.tile), math.ceil(height / self.tile)

    def pictures(self, size: Size) -> int:
        """Tiles, and the whole picture unless it is the only tile."""
        tiles = math.prod(self.tiles(size))
        return tiles + (tiles > 1)

    def shown_size(self, size: Size) -> Size:
        columns, rows = self.tiles(size)
        return columns * self.tile, rows * self.tile

    def cells(self, size: Size, inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        columns, rows = self.tiles(size)
        pictures = self.pictures(size)
        cells = tile_cells((columns, rows), pictures, self.side, self.side)
        return cells, torch.ones(len(cells), dtype=torch.bool), ((self.side, self.side),) * pictures

    def token_rows(self, size: Size) -> Tensor:
        merge = int(self.model.config.scale_factor)
        within = merged_patches(self.side, self.side, merge)
        starts = np.arange(self.pictures(size)) * (self.side * merge) ** 2
        return torch.from_numpy((starts[:, None, None] + within).reshape(-1, merge * merge))

    def fitting(self, size: Size, k: int) -> Idefics3Options:
        """The longest edge, in whole tiles, at which tiles and whole picture make at most k tokens."""
        usual = int(self.options.longest_edge or self.image_processor.size["longest_edge"])
        edges = [along * self.tile for along in range(math.ceil(usual / self.tile), 0, -1)]
        tried = [replace(self.options, longest_edge=edge) for edge in edges]
        counts = {options: self.under(options).pictures(size) * self.side**2 for options in tried}
        return self.most_within(size, k, counts, "when it is a single tile")


def scaled(size: Size, longer: int) -> Size:
    """The longer edge of an image at this length, the other in proportion, rounded down."""
    width, height = size
    aspect = width / height
    return (longer, int(longer / aspect)) if width >= height else (int(longer * aspect), longer)


@BACKBONES.register("smolvlm")
class SmolVLM(Idefics3):
    """SmolVLM and SmolVLM2: Idefics3 with a smaller tower, tiles of 512 pixels and 64 tokens."""
