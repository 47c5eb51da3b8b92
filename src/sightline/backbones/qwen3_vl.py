"""Qwen3-VL: native resolution, 2x2 patch merging, DeepStack features, three-axis rotary positions."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from sightline.backbones.base import BACKBONES, Backbone, Pixels
from sightline.backbones.resampling import resizer
from sightline.backbones.signals import keeping, merged_patch_signal, split_name
from sightline.errors import SightlineError
from sightline.geometry.cells import grid_cells
from sightline.types import Encoded, PositionPolicy


@BACKBONES.register("qwen3_vl")
class Qwen3VL(Backbone):
    """The whole picture is resized, so cells are a plain grid; kept tokens carry (t, h, w) ids."""

    model_class = "Qwen3VLForConditionalGeneration"
    image_processor_class = "Qwen2VLImageProcessorPil"
    axes = 3
    class_tokens = 0
    system = "You are a helpful assistant."
    paper_positions = "preserve"

    @property
    def image_token_id(self) -> int:
        return int(self.model.config.image_token_id)

    def _area(self) -> tuple[int, int]:
        """Fewest and most pixels of the resized picture."""
        size = self.image_processor.size
        return self.options.min_pixels or size["shortest_edge"], self.options.max_pixels or size["longest_edge"]

    def processor_arguments(self) -> dict[str, Any]:
        low, high = self._area()
        return {"min_pixels": low, "max_pixels": high}

    def edited(self, image: Image.Image) -> Image.Image:
        if self.options.jpeg_quality is not None:
            image = reencode_jpeg(image, self.options.jpeg_quality)
        factor = self.options.first_resize_factor
        if factor is not None:
            height, width = resized_size(image.height, image.width, factor, *self._area())
            image = image.resize((width, height), Image.Resampling.BICUBIC)
        return image

    def patch_grid(self, height: int, width: int) -> tuple[int, int, int]:
        edge, merge = int(self.image_processor.patch_size), int(self.image_processor.merge_size)
        high, wide = resized_size(height, width, edge * merge, *self._area())
        return 1, high // edge, wide // edge

    def pixel_pipeline(self, height: int, width: int, device: torch.device) -> Callable[[Tensor], Tensor]:
        """(patches, 3 * frames * edge * edge): patches that merge lie together, each repeated over frames."""
        processor = self.image_processor
        edge, merge, frames = int(processor.patch_size), int(processor.merge_size), int(processor.temporal_patch_size)
        _, rows, columns = self.patch_grid(height, width)
        resize = resizer((height, width), (rows * edge, columns * edge), processor.resample, device)
        normalise = self.normaliser(device)

        def values(picture: Tensor) -> Tensor:
            split = resize(picture).reshape(rows // merge, merge, edge, columns // merge, merge, edge, 3)
            patches = normalise(split.permute(0, 3, 1, 4, 6, 2, 5)).view(rows * columns, 3, 1, edge * edge)
            return patches.expand(-1, -1, frames, -1).reshape(rows * columns, -1)

        return values

    @property
    def vision_blocks(self) -> Any:
        return self.model.model.visual.blocks

    @property
    def merge(self) -> int:
        return int(self.model.config.vision_config.spatial_merge_size)

    def vision(self, batch: Sequence[Pixels], keep: frozenset[int]) -> list[Encoded]:
        grids = torch.tensor([item.grid for item in batch], device=self.language.device)
        with keeping(self.vision_blocks, keep) as kept:
            output = self.model.model.visual(self.tower_inputs(batch), grid_thw=grids, return_dict=True)
        layouts = [(rows // self.merge, columns // self.merge) for _, rows, columns in (item.grid for item in batch)]
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
    ) -> tuple[Tensor, int]:
        """Row and column of each anchor behind ``start``; text goes on behind the longer side of the grid.

        ``compact`` closes the gaps that pruning left: rows and columns are replaced by their rank among the kept
        ones, as if the picture had been a smaller grid. Text ids stay equal on all three axes either way.
        """
        ((rows, columns),) = encoded.layout
        row, column = anchors.clamp(min=0) // columns, anchors.clamp(min=0) % columns
        if policy == "compact":
            row, rows = _ranks(row)
            column, columns = _ranks(column)
        ids = torch.stack([torch.zeros_like(row), row, column]) + start
        return ids, start + max(rows, columns)


def _ranks(values: Tensor) -> tuple[Tensor, int]:
    distinct, ranks = torch.unique(values, sorted=True, return_inverse=True)
    return ranks, int(distinct.numel())


def reencode_jpeg(image: Image.Image, quality: int) -> Image.Image:
    """What a picture looks like after travelling as a JPEG data URL."""
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=quality)
    return Image.open(io.BytesIO(buffer.getvalue())).convert("RGB")


def resized_size(height: int, width: int, factor: int, low: int, high: int) -> tuple[int, int]:
    """(height, width) as the nearest multiples of ``factor`` whose area lies within [low, high]."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    try:
        resized: tuple[int, int] = smart_resize(height, width, factor=factor, min_pixels=low, max_pixels=high)
    except ValueError as error:
        raise SightlineError(f"the picture cannot be resized for Qwen3-VL: {error}") from None
    return resized
