"""LLaVA-OneVision: a SigLIP tower on the whole picture and on up to 36 tiles, stitched and, if too many, shrunken."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sightline.backbones.base import BACKBONES
from sightline.backbones.images import Pixels
from sightline.backbones.llava_next import StitchedTiles
from sightline.geometry.cells import AxisReads, Size
from sightline.geometry.coverage import Sampling

SHRINKS_ABOVE = 1.1
"""Times too long, along either axis, that the stitched grid may be before it is interpolated."""


@BACKBONES.register("llava_onevision")
class LlavaOnevision(StitchedTiles):
    """Stitched patches beyond ``anyres_max_9`` tiles' worth are interpolated: a token reads two by two of them.

    A cell is the extent of all four, so that cells overlap, and signals are interpolated by the same weights. Patches
    of 14 pixels do not fill tiles of 384: the last six rows and columns of pixels of every tile lie in no cell.
    """

    def axis_reads(self, size: Size) -> tuple[AxisReads, AxisReads]:
        columns, rows = self.canvas(size).kept()
        ratio = self._ratio(size)
        if ratio <= SHRINKS_ABOVE:
            return AxisReads.each(columns), AxisReads.each(rows)
        return (
            AxisReads.shrunken(columns, int(len(columns) // ratio)),
            AxisReads.shrunken(rows, int(len(rows) // ratio)),
        )

    def _ratio(self, size: Size) -> float:
        """How many times as long as allowed the stitched grid is, as if it were a square."""
        most = int(str(self.model.config.vision_aspect_ratio).removeprefix("anyres_max_"))
        columns, rows = self.canvas(size).kept()
        return math.sqrt(len(columns) * len(rows) / (most * self.side**2))

    def token_rows(self, size: Size) -> Tensor:
        """(N, 1), or (N, 4) where the grid is shrunken; tokens of the base picture have one row all the same."""
        if self._ratio(size) <= SHRINKS_ABOVE:
            return super().token_rows(size)
        columns, rows = self.axis_reads(size)
        read = [
            self.stitched_rows(size, across, down)
            for down in (rows.first, rows.second)
            for across in (columns.first, columns.second)
        ]
        base = (torch.arange(self.side**2) + int(self.class_token))[:, None].expand(-1, len(read))
        return torch.cat([base, torch.stack(read, dim=1)])

    def token_weights(self, size: Size) -> Tensor | None:
        if self._ratio(size) <= SHRINKS_ABOVE:
            return None
        across, down = (torch.from_numpy(reads.share) for reads in self.axis_reads(size))
        read = [torch.outer(y, x).flatten() for y in (1 - down, down) for x in (1 - across, across)]
        base = torch.zeros(self.side**2, len(read), dtype=torch.float64)
        base[:, 0] = 1.0
        return torch.cat([base, torch.stack(read, dim=1)])

    def sampling(self, pixels: Pixels) -> Sampling | None:
        """Tokens of a shrunken grid read more pixels than those of the base picture: there is no one number."""
        return super().sampling(pixels) if self._ratio(pixels.size) <= SHRINKS_ABOVE else None
