"""Mistral 3 with the Pixtral tower: native resolution, a learned 2x2 merge, a break token behind every row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sightline.backbones.base import BACKBONES
from sightline.backbones.general import General
from sightline.backbones.images import ImageOptions, largest_within, option
from sightline.backbones.prompting import Layout
from sightline.errors import SightlineError
from sightline.geometry.cells import Cells, grid_cells, merged_patches

Size = tuple[int, int]


@dataclass(frozen=True)
class Mistral3Options(ImageOptions):
    longest_edge: int | None = option(None, "Shrink a larger image to this longest edge in pixels.", least=1)


@BACKBONES.register("mistral3")
class Mistral3(General):
    """The whole image is stretched to whole tokens, so cells are a plain grid of the image's own shape.

    Every row ends with a break token, which stays with it; an end token in place of the last stays with the picture.
    """

    image_options = Mistral3Options
    options: Mistral3Options
    fixed_tokens = None

    @property
    def merge(self) -> int:
        """Patches along the edge of a token."""
        return int(self.model.config.spatial_merge_size)

    @property
    def edge(self) -> int:
        """Pixels along the edge of a token."""
        return int(self.model.config.vision_config.patch_size) * self.merge

    @property
    def token_pixels(self) -> int:
        return self.edge**2

    @property
    def longest_edge(self) -> int:
        return int(self.options.longest_edge or self.image_processor.size["longest_edge"])

    def processor_arguments(self) -> dict[str, Any]:
        return {} if self.options.longest_edge is None else {"size": {"longest_edge": self.options.longest_edge}}

    def grid(self, size: Size) -> Size:
        """(rows, columns) of tokens: an image with too long an edge is shrunken, then both are rounded up to tokens."""
        width, height = size
        ratio = max(height / self.longest_edge, width / self.longest_edge)
        if ratio > 1:
            width, height = math.floor(width / ratio), math.floor(height / ratio)
        return (height - 1) // self.edge + 1, (width - 1) // self.edge + 1

    def shown_size(self, size: Size) -> Size:
        rows, columns = self.grid(size)
        return columns * self.edge, rows * self.edge

    def cells(self, size: Size, inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        rows, columns = self.grid(size)
        if rows * columns == 1:
            raise SightlineError(
                f"an image of {size[0]} x {size[1]} pixels makes a single visual token, which the model's own code "
                "cannot read; enlarge the image"
            )
        return grid_cells(rows, columns), torch.ones(rows * columns, dtype=torch.bool), ((rows, columns),)

    def token_rows(self, size: Size) -> Tensor:
        return torch.from_numpy(merged_patches(*self.grid(size), self.merge))

    def fitting(self, size: Size, k: int) -> Mistral3Options:
        """The longest edge that makes at most k tokens: a longer one never makes fewer."""

        def tokens(edge: int) -> int:
            return math.prod(self.under(replace(self.options, longest_edge=edge)).grid(size))

        edge = largest_within(tokens, k, 1, min(self.longest_edge, max(size)) + 1)
        if tokens(edge) < 2:
            raise SightlineError(
                f"an image of {size[0]} x {size[1]} pixels cannot be shown to Mistral3 as 2 to {k} visual tokens, and "
                "a single one it cannot read; choose a larger budget"
            )
        return replace(self.options, longest_edge=edge)
