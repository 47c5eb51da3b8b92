"""LLaVA-NeXT (LLaVA-1.6): a CLIP tower on the whole picture and on tiles of it, stitched together without padding."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sightline.backbones.base import BACKBONES
from sightline.backbones.general import General
from sightline.backbones.signals import split_name
from sightline.backbones.span_plan import Layout
from sightline.core.prefix import Encoded
from sightline.geometry.cells import Cells, within_image
from sightline.geometry.stitched import Canvas, Reading, best_canvas

Size = tuple[int, int]


@BACKBONES.register("llava_next")
class LlavaNext(General):
    """The base picture squeezes the whole image into one tile; the stitched tiles show it once more, larger.

    Every row of the stitched grid ends with a newline embedding, which has no source and stays with its row.
    """

    class_token = True
    fixed_tokens = (
        "its processor enlarges every image to a canvas from a short list and shows the whole picture beside it, so a "
        "smaller image makes hardly fewer tokens"
    )

    @cached_property
    def side(self) -> int:
        """Patches along the edge of a tile."""
        vision = self.model.config.vision_config
        return int(vision.image_size) // int(vision.patch_size)

    @property
    def token_pixels(self) -> int:
        return int(self.model.config.vision_config.patch_size) ** 2

    def canvas(self, size: Size) -> Canvas:
        """An image of this size on the canvas that the processor chooses for it."""
        vision = self.model.config.vision_config
        listed = [(int(wide), int(high)) for high, wide in self.image_processor.image_grid_pinpoints]
        return Canvas(size, best_canvas(size, listed), int(vision.image_size), int(vision.patch_size))

    def readings(self, size: Size) -> tuple[Reading, Reading]:
        """What the columns and the rows of stitched tokens read."""
        columns, rows = self.canvas(size).kept()
        return Reading.each(columns), Reading.each(rows)

    def cells(self, size: Size, inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        vision = self.model.config.vision_config
        columns, rows = self.readings(size)
        high, wide = len(rows.first), len(columns.first)
        edge = int(vision.image_size)
        base = Canvas((edge, edge), (edge, edge), edge, int(vision.patch_size))
        whole = base.cells(*(Reading.each(range(self.side)),) * 2)
        stitched = self.canvas(size).cells(columns, rows)
        line = torch.tensor([True] * wide + [False])
        sourced = torch.cat([torch.ones(self.side**2, dtype=torch.bool), line.repeat(high)])
        layout = ((self.side, self.side), (high, wide))
        return within_image(np.concatenate([whole, stitched])), sourced, layout if high * wide else layout[:1]

    def tower_rows(self, size: Size, columns: np.ndarray, rows: np.ndarray) -> Tensor:
        """(R * C,) rows of the tower of the stitched patches in these (R,) rows and (C,) columns, row by row."""
        down, across = (places.flatten() for places in np.meshgrid(rows, columns, indexing="ij"))
        tiles, patches = self.canvas(size).patches(across, down)
        lead = int(self.class_token)
        return torch.from_numpy((tiles + 1) * (self.side**2 + lead) + lead + patches)

    def token_rows(self, size: Size) -> Tensor:
        columns, rows = self.readings(size)
        base = torch.arange(self.side**2) + int(self.class_token)
        return torch.cat([base, self.tower_rows(size, columns.first, rows.first)])[:, None]

    def serves(self, name: str) -> str | None:
        """The tower is CLIP's, whose own projection can be put behind it."""
        kind, _ = split_name(name)
        tower = str(self.model.config.vision_config.model_type)
        return None if kind.startswith("clip.") and tower.startswith("clip") else super().serves(name)

    def clip_states(self, encoded: Encoded) -> Tensor:
        normed: Tensor = self.vision_tower.post_layernorm(self.vision_signal("vision.hidden@-2", encoded))
        return normed

    def merge_sources(self, encoded: Encoded) -> Tensor:
        """The class token is that of the base picture."""
        layer = int(self.model.config.vision_feature_layer)
        name = str(layer if layer < 0 else layer - len(self.vision_blocks) - 1)
        of_image = self.vision_signal(f"vision.cls@{name}", encoded)
        return torch.cat([self.vision_signal(f"vision.hidden@{name}", encoded), of_image[None]])

    def project(self, hidden: Tensor) -> Tensor:
        projected: Tensor = self.body.multi_modal_projector(hidden)
        return projected
