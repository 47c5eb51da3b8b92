"""How the vision tower runs: the model's own kernels, compiled blocks, or all of it replayed as one captured graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sightline.backbones.attention import pack
from sightline.backbones.base import Backbone
from sightline.backbones.execution import Execution, unrelated_sizes
from sightline.backbones.image_steps import with_pixels
from sightline.backbones.pixels import Pixels
from sightline.backbones.signals import PIXELS, hidden_indices
from sightline.backbones.tower import Block, call_block
from sightline.backbones.towered import Towered
from sightline.core.prefix import Encoded
from sightline.device.graphs import capture
from sightline.device.joining import join_projections
from sightline.device.stopwatch import setting_up


def use_vision_execution(
    backbone: Backbone, execution: Execution, *, backend: str = "inductor", dynamic: bool | None = None
) -> None:
    """Switches a backbone's tower to the mode of an execution, which is billed for compiling; the last call counts.

    Capturing needs images of one shape, so ``graph`` compiles here like ``compiled``; see ``CapturedVision``.
    """
    if not isinstance(backbone, Towered):  # the model's own code runs its tower
        return
    if backbone.packs_images:
        pack(backbone.model.config.vision_config, execution.mode != "eager")
    if execution.mode == "eager":
        backbone.call_block, backbone.patch_products = call_block, False
        return
    join_projections(backbone.vision_blocks)
    backbone.call_block = CompiledBlocks(execution, backbone.language.device, backend, dynamic)
    backbone.patch_products = True


class CompiledBlocks:
    """Every block through one compiled function; the first call of a shape is set-up."""

    def __init__(self, execution: Execution, device: torch.device, backend: str, dynamic: bool | None) -> None:
        self._call: Block = torch.compile(call_block, backend=backend, dynamic=dynamic)
        self._execution, self._device, self._dynamic = execution, device, bool(dynamic)
        self._seen: set[tuple[int, ...]] = set()

    def __call__(self, block: Any, hidden: Tensor, arguments: dict[str, Any]) -> Tensor:
        shape = (hidden.shape[0] == 1,) if self._dynamic else tuple(hidden.shape)
        if shape not in self._seen:
            with setting_up(self._device, self._execution.setup_ms), unrelated_sizes():
                self._call(block, hidden, arguments)
            self._seen.add(shape)
        return self._call(block, hidden, arguments)


class CapturedVision:
    """Encodes single images of one shape: from the image's bytes to projected tokens in one replay.

    What depends on the shape alone (resize tables, positions) is computed once. Hidden states that signals read are
    kept in the same graph. On the CPU nothing is captured: the same buffers are filled and the tower is called.
    """

    def __init__(self, backbone: Towered, sample: Pixels, needs: frozenset[str]) -> None:
        self.backbone, self.sample = backbone, sample
        self._tower = backbone.tower([sample.grid])
        self._keep = hidden_indices(needs, len(backbone.vision_blocks))
        self._shows = PIXELS in needs
        device = backbone.language.device
        self._data = sample.data.to(device, copy=True)
        self.staging = torch.empty_like(sample.data, pin_memory=True) if device.type == "cuda" else None
        """Memory for the next image's bytes, free again when the tokens of the last one have been read."""
        self._prepare = backbone.under(sample.options).preparing(self._data)
        self._replay: Callable[[], tuple[list[Tensor], dict[int, Tensor]]] = self._call
        if device.type == "cuda":
            # A resize is dozens of small steps; compiled they are one per direction.
            self._prepare = torch.compile(self._prepare, dynamic=False)
            with torch.inference_mode():
                self._replay, _ = capture(self._call, device)

    def _call(self) -> tuple[list[Tensor], dict[int, Tensor]]:
        pixels = self._prepare(self._data).to(self.backbone.language.dtype)
        return self._tower(pixels, self._keep, self.backbone.call_block)

    @torch.inference_mode()
    def __call__(self, pixels: Pixels) -> Encoded:
        """The tokens lie in the graph's own memory and are valid until the next call."""
        self._data.copy_(pixels.data, non_blocking=True)
        outputs: Any = self._replay()
        (encoded,) = self.backbone.seen([self.sample], self._tower, *outputs)
        return with_pixels(encoded, self._data) if self._shows else encoded
