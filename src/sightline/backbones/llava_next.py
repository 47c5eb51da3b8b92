"""LLaVA-NeXT (LLaVA-1.6): a tower on the whole picture and on up to four tiles of it, stitched together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sightline.backbones.base import BACKBONES
from sightline.backbones.general import General
from sightline.backbones.prompting import Layout
from sightline.backbones.signals import MERGED, projector_mismatch
from sightline.core.prefix import Encoded
from sightline.geometry.cells import AxisReads, Canvas, Cells, Indices, Size, best_canvas, within_image

# What LLaVA-NeXT and OneVision share: the whole picture in one tile, then tiles of it stitched to one grid.

CLASS_TOKENS = ("class_embedding", "cls_token", "class_token")
"""What towers of transformers call the weights of a class token."""


class StitchedTiles(General):
    """The base picture squeezes the whole image into one tile; the stitched tiles show it once more, larger.

    Every row of the stitched grid ends with a newline embedding, which has no source and stays with its row.
    """

    fixed_tokens = (
        "its processor enlarges every image to a canvas from a list and shows the whole picture beside it, so that a "
        "smaller image makes hardly fewer tokens"
    )

    @cached_property
    def class_token(self) -> bool:  # type: ignore[override]
        """As the checkpoint's own tower has it: CLIP's puts one before the patches, SigLIP's none.

        Told from the tower's weights, which need not be there: it is made without any from the configuration.
        """
        from transformers import AutoModel

        with torch.device("meta"):
            tower = AutoModel.from_config(self.model.config.vision_config)
        return any(name.rpartition(".")[2] in CLASS_TOKENS for name, _ in tower.named_parameters())

    @property
    def tile(self) -> int:
        """Edge of a tile in pixels."""
        return int(self.model.config.vision_config.image_size)

    @property
    def patch(self) -> int:
        """Edge of a patch in pixels."""
        return int(self.model.config.vision_config.patch_size)

    @property
    def side(self) -> int:
        """Patches along the edge of a tile."""
        return self.tile // self.patch

    @property
    def token_pixels(self) -> int:
        return self.patch**2

    def canvas(self, size: Size) -> Canvas:
        """An image of this size on the canvas that the processor chooses for it."""
        listed = [(int(wide), int(high)) for high, wide in self.image_processor.image_grid_pinpoints]
        return Canvas(size, best_canvas(size, listed), self.tile, self.patch)

    def axis_reads(self, size: Size) -> tuple[AxisReads, AxisReads]:
        """What the columns and the rows of stitched tokens read."""
        columns, rows = self.canvas(size).kept()
        return AxisReads.each(columns), AxisReads.each(rows)

    def cells(self, size: Size, inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        every = AxisReads.each(range(self.side))
        base = Canvas((self.tile, self.tile), (self.tile, self.tile), self.tile, self.patch).cells(every, every)
        columns, rows = self.axis_reads(size)
        high, wide = len(rows.first), len(columns.first)
        line = torch.tensor([True] * wide + [False])
        sourced = torch.cat([torch.ones(len(base), dtype=torch.bool), line.repeat(high)])
        layout = ((self.side, self.side), (high, wide))
        cells = within_image(np.concatenate([base, self.canvas(size).cells(columns, rows)]))
        return cells, sourced, layout if high * wide else layout[:1]

    def token_rows(self, size: Size) -> Tensor:
        columns, rows = self.axis_reads(size)
        base = torch.arange(self.side**2) + int(self.class_token)
        return torch.cat([base, self.stitched_rows(size, columns.first, rows.first)])[:, None]

    def stitched_rows(self, size: Size, columns: Indices, rows: Indices) -> Tensor:
        """(R * C,) rows of the tower of the stitched patches in these (R,) rows and (C,) columns, row by row."""
        down, across = (places.flatten() for places in np.meshgrid(rows, columns, indexing="ij"))
        tiles, patches = self.canvas(size).patches(across, down)
        lead = int(self.class_token)
        return torch.from_numpy((tiles + 1) * (self.side**2 + lead) + lead + patches)


@BACKBONES.register("llava_next")
class LlavaNext(StitchedTiles):
    """The tower is CLIP's as published, SigLIP's in Granite Vision, which has no class token.

    Of CLIP's every tile has a class token of its own; that of the base picture stands for the image.
    """

    def unprojected(self) -> str | None:
        return projector_mismatch(self.model.config)

    def merge_sources(self, encoded: Encoded) -> Tensor:
        states = self.vision_signal(f"vision.hidden@{MERGED}", encoded)
        if not self.class_token:
            return states
        return torch.cat([states, self.vision_signal(f"vision.cls@{MERGED}", encoded)[None]])

    def project(self, hidden: Tensor) -> Tensor:
        projected: Tensor = self.body.multi_modal_projector(hidden)
        return projected
