"""Processors that keep an image's proportions: it is resized to whole cells, as many as bounds on its pixels allow."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sightline.backbones.general import General
from sightline.backbones.options import ImageOptions, option
from sightline.backbones.pixels import Pixels
from sightline.backbones.signals import PIXELS, pixels_of_tokens, with_pixels
from sightline.backbones.spans import Layout
from sightline.core.prefix import Encoded
from sightline.errors import SightlineError
from sightline.geometry.cells import Cells, grid_cells


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
        most = most_pixels(tokens, k, width * height)
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

    def vision(self, batch: Sequence[Pixels], needs: frozenset[str]) -> list[Encoded]:
        encoded = super().vision(batch, needs - {PIXELS})
        if PIXELS not in needs:
            return encoded
        shown = [item.data.to(self.language.device, non_blocking=True) for item in batch]
        return [with_pixels(*pair) for pair in zip(encoded, shown, strict=True)]

    def vision_signal(self, name: str, encoded: Encoded) -> Tensor:
        if name == PIXELS:
            return pixels_of_tokens(encoded.captured[PIXELS], encoded.layout)
        return super().vision_signal(name, encoded)


def most_pixels(tokens: Callable[[int], int], k: int, enough: int) -> int:
    """The largest bound on pixels, up to ``enough``, under which an image makes at most k tokens.

    More pixels never make fewer tokens, so it is found by halving.
    """
    low, high = 1, enough + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tokens(middle) <= k else (low, middle)
    return low
