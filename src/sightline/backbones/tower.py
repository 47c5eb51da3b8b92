"""A vision tower as a loop over its own blocks, like the language model: what can be compiled, captured and cut short.

Weights and modules are the checkpoint's own. Compared with the model's call, tables that depend on the picture's size
alone are computed once, patches are embedded by a matrix product, and the loop ends behind the last block whose output
anyone reads (LLaVA's features come from the last block but one).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

Block = Callable[[Any, Tensor, dict[str, Any]], Tensor]
"""How one block is called: (block, hidden, arguments) -> hidden."""


def call_block(block: Any, hidden: Tensor, arguments: dict[str, Any]) -> Tensor:
    output: Tensor = block(hidden, **arguments)
    return output


@dataclass(frozen=True)
class Tower:
    """The vision tower and projector for pictures of one size.

    Hidden state i is the input of block i; state ``len(blocks)`` is the last block's output.
    """

    blocks: Any
    embed: Callable[[Tensor], Tensor]
    """Pixel values -> hidden state 0."""
    reads: frozenset[int]
    """Hidden states that ``finish`` needs."""
    finish: Callable[[Mapping[int, Tensor]], list[Tensor]]
    """Hidden states -> projected tokens (B, N, D) or (sum of N, D), then DeepStack levels of the same shape."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """What every block is called with."""

    def __call__(
        self, pixels: Tensor, keep: frozenset[int] = frozenset(), call: Block = call_block
    ) -> tuple[list[Tensor], dict[int, Tensor]]:
        """Tokens and levels, and the hidden states in ``keep``."""
        wanted = self.reads | keep
        states: dict[int, Tensor] = {}
        hidden = self.embed(pixels)
        for index in range(max(wanted) + 1):
            if index in wanted:
                states[index] = hidden
            if index < max(wanted):
                hidden = call(self.blocks[index], hidden, self.arguments)
        return self.finish(states), {index: states[index] for index in keep}


class Bounds:
    """Sequence bounds that a block may difference and turn into a list of lengths while it is traced.

    A tensor's values are unknown to a compiler; these are plain numbers.
    """

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __getitem__(self, _: slice) -> Bounds:
        return self

    def __sub__(self, _: Bounds) -> Bounds:
        return self

    def tolist(self) -> list[int]:
        return self.lengths


def qwen3_vl_tower(model: Any, grids: Tensor) -> Tower:
    """``grids`` (B, 3) on the host: frames, patch rows and patch columns of every picture."""
    from transformers import vision_utils

    tower = model.visual
    device = tower.patch_embed.proj.weight.device
    indices, weights = (
        table.to(device)
        for table in vision_utils.get_vision_interpolation_indices_and_weights(
            grids,
            num_grid_per_side=tower.num_grid_per_side,
            mode=tower.interpolation_mode,
            align_corners=tower.interpolation_align_corners,
            spatial_merge_size=tower.spatial_merge_size,
        )
    )
    kernel = tower.patch_embed.proj
    positions = (tower.pos_embed(indices) * weights[:, :, None]).sum(1).to(kernel.weight.dtype)
    ids = vision_utils.get_vision_position_ids(grids, tower.spatial_merge_size).to(device)
    levels = [int(block) + 1 for block in tower.deepstack_visual_indexes]
    depth = len(tower.blocks)

    def embed(pixels: Tensor) -> Tensor:
        """Patches (P, C F H W) times the kernel: a convolution whose stride is its size."""
        embedded: Tensor = linear(pixels, kernel.weight.flatten(1), kernel.bias) + positions
        return embedded

    def finish(states: Mapping[int, Tensor]) -> list[Tensor]:
        mergers = zip(levels, tower.deepstack_merger_list, strict=True)
        return [tower.merger(states[depth]), *(merger(states[level]) for level, merger in mergers)]

    return Tower(
        tower.blocks,
        embed,
        frozenset([depth, *levels]),
        finish,
        {
            "cu_seqlens": Bounds([int(frames * rows * columns) for frames, rows, columns in grids.tolist()]),
            "position_embeddings": tower.rotary_pos_emb(positions, ids),
        },
    )


def llava_tower(model: Any) -> Tower:
    tower = model.vision_tower
    depth = len(tower.encoder.layers)
    chosen = model.config.vision_feature_layer
    layers = [int(layer) % (depth + 1) for layer in ([chosen] if isinstance(chosen, int) else chosen)]
    first = 1 if model.config.vision_feature_select_strategy == "default" else 0

    def embed(pixels: Tensor) -> Tensor:
        hidden: Tensor = tower.pre_layrnorm(tower.embeddings(pixels))
        return hidden

    def finish(states: Mapping[int, Tensor]) -> list[Tensor]:
        return [model.multi_modal_projector(torch.cat([states[layer][:, first:] for layer in layers], dim=-1))]

    return Tower(tower.encoder.layers, embed, frozenset(layers), finish, {"attention_mask": None})


def internvl_tower(model: Any) -> Tower:
    tower = model.vision_tower
    depth = len(tower.encoder.layer)
    layer = int(model.config.vision_feature_layer) % (depth + 1)
    first = 1 if model.config.vision_feature_select_strategy == "default" else 0

    def finish(states: Mapping[int, Tensor]) -> list[Tensor]:
        features = tower.layernorm(states[depth]) if layer == depth else states[layer]
        features = features[:, first:]
        tiles, side = features.shape[0], int(features.shape[1] ** 0.5)
        shuffled = model.pixel_shuffle(
            features.reshape(tiles, side, side, -1), scale_factor=model.config.downsample_ratio
        )
        return [model.multi_modal_projector(shuffled.reshape(tiles, -1, shuffled.shape[-1]))]

    return Tower(tower.encoder.layer, tower.embeddings, frozenset([layer]), finish)
