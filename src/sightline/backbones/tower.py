"""A vision tower as a loop over its own blocks, like the language model: what can be compiled, captured and cut short.

Weights and modules are the checkpoint's own, in the order in which the model itself calls them; every architecture
builds its tower in its own file. The loop ends behind the last block whose output anyone reads (LLaVA's features come
from the last block but one), and hidden states that a signal needs are kept on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from sightline.core.prefix import PositionPolicy

Block = Callable[[Any, Tensor, dict[str, Any]], Tensor]
"""How one block is called: (block, hidden, arguments) -> hidden."""


def call_block(block: Any, hidden: Tensor, arguments: dict[str, Any]) -> Tensor:
    output: Tensor = block(hidden, **arguments)
    return output


@dataclass(frozen=True)
class Tower:
    """The vision tower and projector for a batch of images whose sizes are known.

    Hidden state i is the input of block i; state ``len(blocks)`` is the last block's output.
    """

    blocks: Any
    embed: Callable[[Tensor], Tensor]
    """Pixel values -> hidden state 0."""
    reads: frozenset[int]
    """Hidden states that ``finish`` needs."""
    finish: Callable[[Mapping[int, Tensor]], list[Tensor]]
    """Hidden states -> projected tokens (..., D), image after image, then DeepStack levels of the same shape."""
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

    A tensor's values are unknown to a compiler; these are plain numbers. Code that needs no more than ``sequences``
    and ``alike`` serves images of any size without being compiled again.
    """

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.sequences = len(lengths)
        self.alike = len(set(lengths)) == 1

    def __getitem__(self, _: slice) -> Bounds:
        return self

    def __sub__(self, _: Bounds) -> Bounds:
        return self

    def tolist(self) -> list[int]:
        return self.lengths


def patch_product(kernel: Any, pixels: Tensor) -> Tensor:
    """A convolution whose stride is its size, as one matrix product: (B, C, H, W) -> (B, P, E).

    Convolution kernels are slow for this. Rows are padded with zeros to a multiple of eight entries, which matrix
    kernels want.
    """
    height, width = kernel.kernel_size
    batch, channels, _, across = pixels.shape
    patches = pixels.reshape(batch, channels, -1, height, across // width, width)
    rows = patches.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
    missing = -rows.shape[-1] % 8
    return linear(pad(rows, (0, missing)), pad(kernel.weight.flatten(1), (0, missing)), kernel.bias)


# Logical positions of architectures that number the sequence on one axis.


def sequential_positions(n: int, anchors: Tensor, start: int, policy: PositionPolicy) -> tuple[Tensor, int]:
    """``preserve``: each kept token keeps the slot of its anchor among the n; ``compact``: 0, 1, 2, ... behind
    ``start``.

    An output without an anchor (-1: a class token) has no slot of its own and takes the first.
    """
    if policy == "compact":
        ids = torch.arange(len(anchors), device=anchors.device)
        return (ids + start)[None], start + len(anchors)
    return (anchors.clamp(min=0) + start)[None], start + n
