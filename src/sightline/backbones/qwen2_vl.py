"""Qwen2-VL and Qwen2.5-VL: native resolution, 2x2 patch merging, three-axis rotary positions."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.backbones.base import BACKBONES
from sightline.backbones.native_resolution import NativeResolution
from sightline.errors import SightlineError
from sightline.geometry.cells import window_places


@BACKBONES.register("qwen2_vl")
class Qwen2VL(NativeResolution):
    """Every block of the tower attends to the whole image; there is no class token."""

    def resized(self, size: tuple[int, int], low: int, high: int) -> tuple[int, int]:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        try:
            height, width = smart_resize(size[1], size[0], factor=self.factor, min_pixels=low, max_pixels=high)
        except ValueError as error:
            raise SightlineError(f"the image cannot be resized for {type(self).__name__}: {error}") from None
        return width, height


@BACKBONES.register("qwen2_5_vl")
class Qwen25VL(Qwen2VL):
    """Most blocks attend within windows, ``fullatt_block_indexes`` name those that attend to the whole image.

    All blocks see the tokens window by window; the model itself puts them back row by row behind the merger. So the
    attention that a token receives is, in most blocks, that of its window: it adds up to 1 over each window's patches.
    """

    def token_rows(self, size: tuple[int, int]) -> Tensor:
        config = self.model.config.vision_config
        side = int(config.window_size) // int(config.spatial_merge_size) // int(config.patch_size)
        return super().token_rows(size)[torch.from_numpy(window_places(*self.token_grid(size), side))]
