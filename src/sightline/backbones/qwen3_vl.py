"""Qwen3-VL: native resolution, 2x2 patch merging, DeepStack features, three-axis rotary positions."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from sightline.backbones.base import BACKBONES, Backbone, Pixels
from sightline.backbones.signals import keeping, merged_patch_signal, split_name
from sightline.engine.transfer import on_device
from sightline.errors import SightlineError
from sightline.geometry.cells import grid_cells
from sightline.types import Encoded, PositionPolicy


@BACKBONES.register("qwen3_vl")
class Qwen3VL(Backbone):
    """The whole picture is resized, so cells are a plain grid; kept tokens carry (t, h, w) ids."""

    model_class = "Qwen3VLForConditionalGeneration"
    image_processor_class = "Qwen2VLImageProcessorPil"
    axes = 3
    system = "You are a helpful assistant."
    paper_positions = "preserve"

    @property
    def image_token_id(self) -> int:
        return int(self.model.config.image_token_id)

    def preprocess_inputs(self, image: Image.Image) -> dict[str, Tensor]:
        size = self.image_processor.size
        low = self.options.min_pixels or size["shortest_edge"]
        high = self.options.max_pixels or size["longest_edge"]
        if self.options.jpeg_quality is not None:
            image = reencode_jpeg(image, self.options.jpeg_quality)
        if self.options.first_resize_factor is not None:
            image = resize_to_factor(image, self.options.first_resize_factor, low, high)
        try:
            features = self.image_processor(images=image, min_pixels=low, max_pixels=high, return_tensors="pt")
        except ValueError as error:
            raise SightlineError(f"the picture cannot be resized for Qwen3-VL: {error}") from None
        return {"pixel_values": features["pixel_values"], "image_grid_thw": features["image_grid_thw"]}

    @property
    def vision_blocks(self) -> Any:
        return self.model.model.visual.blocks

    @property
    def merge(self) -> int:
        return int(self.model.config.vision_config.spatial_merge_size)

    def vision(self, batch: Sequence[Pixels], keep: frozenset[int]) -> list[Encoded]:
        device, dtype = self.language.device, self.language.dtype
        pixels = on_device(torch.cat([item.inputs["pixel_values"] for item in batch]), device).to(dtype)
        grids = torch.cat([item.inputs["image_grid_thw"] for item in batch])
        with keeping(self.vision_blocks, keep) as kept:
            output = self.model.model.visual(pixels, grid_thw=on_device(grids, device), return_dict=True)
        layouts = [(int(h) // self.merge, int(w) // self.merge) for _, h, w in grids.tolist()]
        sizes = [rows * columns for rows, columns in layouts]
        tokens = output.pooler_output.split(sizes)
        levels = [level.split(sizes) for level in output.deepstack_features]
        captured = self._captured(kept, keep, [size * self.merge**2 for size in sizes])
        return [
            Encoded(
                tokens=tokens[i],
                deepstack=tuple(level[i] for level in levels),
                cells=grid_cells(*layouts[i]),
                layout=(layouts[i],),
                captured=captured[i],
            )
            for i in range(len(batch))
        ]

    @staticmethod
    def _captured(kept: dict[str, Any], keep: frozenset[int], patches: list[int]) -> list[dict[str, Tensor]]:
        """The kept hidden states and rotary tables, one dictionary per picture."""
        if not keep:
            return [{} for _ in patches]
        tensors = {f"hidden:{index}": kept[f"hidden:{index}"] for index in keep}
        if "kwargs" in kept:
            tensors["cos"], tensors["sin"] = kept["kwargs"]["position_embeddings"]
        parts = {name: tensor.split(patches) for name, tensor in tensors.items()}
        return [{name: part[i] for name, part in parts.items()} for i in range(len(patches))]

    def serves(self, name: str) -> str | None:
        kind, _ = split_name(name)
        if kind in ("vision.received", "vision.key") or kind.startswith("lm."):
            return None
        return (
            f"its vision tower has no class token and merges {self.merge}x{self.merge} patches, so there is no {kind}"
        )

    def vision_signal(self, name: str, encoded: Encoded) -> Tensor:
        hidden = dict(encoded.captured)
        heads = int(self.model.config.vision_config.num_heads)
        return merged_patch_signal(
            name, hidden, (hidden["cos"], hidden["sin"]), self.vision_blocks, heads, self.merge**2
        )

    def visual_positions(
        self, encoded: Encoded, anchors: Tensor, start: int, policy: PositionPolicy
    ) -> tuple[Tensor, int | Tensor]:
        """Row and column of each anchor behind ``start``; text goes on behind the longer side of the grid.

        ``compact`` closes the gaps that pruning left: rows and columns are replaced by their rank among the kept
        ones, as if the picture had been a smaller grid. Text ids stay equal on all three axes either way.
        """
        ((rows, columns),) = encoded.layout
        within = anchors.clamp(0, rows * columns - 1)
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


def reencode_jpeg(image: Image.Image, quality: int) -> Image.Image:
    """What a picture looks like after travelling as a JPEG data URL."""
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=quality)
    return Image.open(io.BytesIO(buffer.getvalue())).convert("RGB")


def resize_to_factor(image: Image.Image, factor: int, low: int, high: int) -> Image.Image:
    """Bicubic resize to the nearest multiples of ``factor`` whose area lies within [low, high]."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    height, width = smart_resize(image.height, image.width, factor=factor, min_pixels=low, max_pixels=high)
    return image.resize((width, height), Image.Resampling.BICUBIC)
