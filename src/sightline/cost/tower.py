"""The vision tower for pictures of one shape, run eagerly, compiled, or replayed as a captured graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sightline.backbones.base import Backbone, Pixels
from sightline.backbones.signals import hidden_indices, keeping
from sightline.engine.graphs import capture
from sightline.types import Encoded


class Tower:
    """Encodes pictures that all have the shape of the sample it was made with.

    ``eager`` is the backbone's own call. Otherwise the blocks are compiled (on a GPU), what depends on the picture's
    size alone (resize tables, positions, sequence bounds) is computed once beforehand, and ``graph`` captures the rest,
    from the picture's bytes on. States that a selector's signals are read from are kept in the same way, so that all
    arms use the same kernels.
    """

    def __init__(self, backbone: Backbone, sample: Pixels, execution: str, needs: frozenset[str]) -> None:
        self.backbone, self.needs, self.execution = backbone, needs, execution
        if execution == "eager":
            return
        (self._template,) = backbone.encode([sample], needs)
        self._keep = hidden_indices(needs, len(backbone.vision_blocks))
        device = backbone.language.device
        self._data = sample.data.to(device, copy=True)
        self._prepare = backbone.preparing(self._data)
        self._forward = fixed_forward(backbone, sample)
        if device.type == "cuda":
            compile_blocks(backbone.vision_blocks)
        self._replay: Callable[[], tuple[list[Tensor], dict[str, Tensor]]] = self._call
        if execution == "graph" and device.type == "cuda":
            with torch.inference_mode():
                self._replay, _ = capture(self._call, device)

    def _call(self) -> tuple[list[Tensor], dict[str, Tensor]]:
        with keeping(self.backbone.vision_blocks, self._keep) as kept:
            output = self._forward(self._prepare(self._data).to(self.backbone.language.dtype))
        return output, {name: value for name, value in kept.items() if name.startswith("hidden:")}

    @torch.inference_mode()
    def __call__(self, pixels: Sequence[Pixels]) -> list[Encoded]:
        """In graph execution a single picture's tokens are the graph's own memory, valid until the next call."""
        if self.execution == "eager":
            return self.backbone.encode(pixels, self.needs)
        encoded = []
        for item in pixels:
            self._data.copy_(item.data, non_blocking=True)
            (tokens, *levels), kept = self._replay()
            if len(pixels) > 1:
                tokens, levels = tokens.clone(), [level.clone() for level in levels]
                kept = {name: value.clone() for name, value in kept.items()}
            encoded.append(
                replace(self._template, tokens=tokens, deepstack=tuple(levels), captured=self._captured(kept))
            )
        return encoded

    def _captured(self, kept: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the backbone would have stored: hidden states of this picture, and tables that depend on its size."""
        stored = {}
        for name, usual in self._template.captured.items():
            value = kept.get(name, usual)
            stored[name] = value[0] if value.ndim > usual.ndim else value
        return stored


def compile_blocks(blocks: Any) -> None:
    """Compiles what the vision blocks compute; hooks that keep their inputs stay outside. Once per process."""
    for block in blocks:
        if "forward" not in vars(block):
            block.forward = torch.compile(block.forward, dynamic=False)


def fixed_forward(backbone: Backbone, sample: Pixels) -> Callable[[Tensor], list[Tensor]]:
    """pixels -> [(N, D) tokens, DeepStack levels ...] with everything that depends on the size alone computed once."""
    model: Any = backbone.model.model
    if not hasattr(model, "visual"):

        def plain(pixels: Tensor) -> list[Tensor]:
            return [torch.cat(tuple(model.get_image_features(pixels, return_dict=True).pooler_output))]

        return plain
    from transformers import vision_utils

    tower = model.visual
    grid = torch.tensor([sample.grid])
    device = backbone.language.device
    indices, weights = vision_utils.get_vision_interpolation_indices_and_weights(
        grid,
        num_grid_per_side=tower.num_grid_per_side,
        mode=tower.interpolation_mode,
        align_corners=tower.interpolation_align_corners,
        spatial_merge_size=tower.spatial_merge_size,
    )
    ids = vision_utils.get_vision_position_ids(grid, tower.spatial_merge_size)
    # Bounds stay on the host: attention turns them into a list, which a capture could not wait for.
    fixed = {
        "interp_indices": indices.to(device),
        "interp_weights": weights.to(device),
        "position_ids": ids.to(device),
        "cu_seqlens": vision_utils.get_vision_cu_seqlens(grid),
    }

    def multimodal(pixels: Tensor) -> list[Tensor]:
        output = tower(pixels, grid_thw=grid, return_dict=True, **fixed)
        return [output.pooler_output, *output.deepstack_features]

    return multimodal
