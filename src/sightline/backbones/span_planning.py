"""How the span of every image of a checkpoint is made up, worked out once per size."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from sightline.backbones.found_cells import FoundCells, cached_cells, find_cells
from sightline.backbones.options import ImageOptions
from sightline.backbones.processor_prompting import ProcessorPrompting, image_inputs
from sightline.backbones.span_plan import Layout, SpanPlan, owners
from sightline.core.slot_positions import SlotPositions
from sightline.errors import SightlineError
from sightline.geometry.blocks import split_tiles, token_blocks
from sightline.geometry.cells import Cells


class SpanPlanning(ProcessorPrompting):
    """Cells, separators and positions of a checkpoint's images, by their size.

    A plan may have to send ramps through the model, its attention silenced: plans are made where images are encoded,
    never beside it.
    """

    options: ImageOptions
    axes: int
    seeing: Any
    """The part of the model that makes features of images, and knows their positions."""
    identity: Mapping[str, Any]
    """What cells depend on beside the size and the options of an image; empty: they are found anew every time."""
    plans: dict[tuple[ImageOptions, tuple[int, int]], SpanPlan]

    @abstractmethod
    def features(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(P, D) features in the order of the placeholders, and DeepStack levels, by the model's own code."""

    def image_inputs(self, image: Image.Image) -> dict[str, Tensor]:
        return image_inputs(self.processed(image))

    def span_ids(self, size: tuple[int, int]) -> tuple[int, ...]:
        return self.plan(size).ids

    def token_count(self, size: tuple[int, int]) -> int:
        return self.plan(size).n

    def plan(self, size: tuple[int, int]) -> SpanPlan:
        """How the span of an image of this (width, height) is made up."""
        key = (self.options, size)
        if key not in self.plans:
            self.plans[key] = self._worked_out(size)
        return self.plans[key]

    def _worked_out(self, size: tuple[int, int]) -> SpanPlan:
        processed = self.processed(Image.new("RGB", size, (255, 255, 255)))
        ids = self.written(processed).ids
        features = (torch.tensor(ids) == self.image_token_id).nonzero()[:, 0]
        cells, sourced, layout = self.cells(size, image_inputs(processed))
        if len(sourced) != len(features):
            raise SightlineError(
                f"{type(self.model).__name__}: the processor writes {len(features)} placeholders and the tower makes "
                f"{len(sourced)} features for an image of {size[0]} x {size[1]}"
            )
        if not sourced.any():
            raise SightlineError(
                f"{type(self.model).__name__}: no visual token comes from a place in the image (a Q-Former, a "
                "resampler, a codebook): there are no cells to audit"
            )
        return SpanPlan(
            ids=ids,
            features=features,
            sourced=sourced,
            cells=cells,
            layout=layout,
            owners=owners(len(ids), features, sourced, layout),
            positions=self.span_positions(ids, image_inputs(processed)),
        )

    def cells(self, size: tuple[int, int], inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        """(N, 4) cells, (P,) which features have one, and the layout of the N; found, where no class declares them."""
        found = self.found_cells(size)
        cells, tiles = found.cells[found.sourced], found.tiles[found.sourced]
        layout = token_blocks(cells, tiles)
        split = split_tiles(layout, tiles) if tiles.any() else 0
        if split:
            raise SightlineError(
                f"{split} of {len(set(tiles))} tiles that its image processor makes of {size[0]} x {size[1]} pixels "
                "are no rectangle of tokens, so that there are no tiles to choose from"
            )
        return cells, torch.from_numpy(found.sourced), layout

    def found_cells(self, size: tuple[int, int]) -> FoundCells:
        """Cells of all features of an image of this (width, height), by ramps; remembered if possible."""

        def find() -> FoundCells:
            return find_cells(size, self.image_inputs, lambda given: self.features(given)[0], self.tower_module)

        if not self.identity:
            return find()
        return cached_cells({**self.identity, "options": self.options.as_dict()}, size, find)

    @property
    def tower_module(self) -> nn.Module:
        """What makes features of pixels; its attention is silenced while cells are found."""
        module: nn.Module = self.seeing
        return module

    def span_positions(self, ids: tuple[int, ...], inputs: Mapping[str, Tensor]) -> SlotPositions:
        """The model's own, asked with one text token before and behind the span."""
        if self.axes == 1:
            return SlotPositions.sequential(len(ids))
        head, tail = self._around_image(self.render("word", None))
        sequence = torch.tensor([[*head, *ids, *tail]])
        asked = {
            **inputs,
            "input_ids": sequence,
            "attention_mask": torch.ones_like(sequence),
            "mm_token_type_ids": (sequence == self.image_token_id).int(),
        }
        takes = inspect.signature(self.seeing.get_rope_index).parameters
        found, _ = self.seeing.get_rope_index(**{name: value for name, value in asked.items() if name in takes})
        start = len(head)
        span = found[:, 0, start : start + len(ids)].cpu() - start
        return SlotPositions(span, int(found[:, 0, start + len(ids)].max()) - start)
