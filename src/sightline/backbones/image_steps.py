"""From an image to projected tokens with their cells: steps that architectures share, methods of their base classes.

What an architecture says (its patch grid, pixel values, tower and cells) is the contract in ``towered.py``; here it is
put to use, in the order of the functions below.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sightline.backbones.normalising import Normaliser
from sightline.backbones.options import ImageOptions
from sightline.backbones.pixels import Fit, Pixels, stored_pixels
from sightline.backbones.signals import PIXELS, hidden_indices
from sightline.backbones.tower import Tower
from sightline.core.prefix import Encoded
from sightline.core.selection import Budget
from sightline.device.stopwatch import Stopwatch
from sightline.errors import SightlineError

AnyBackbone = TypeVar("AnyBackbone", bound="Backbone")

if TYPE_CHECKING:
    from sightline.backbones.base import Backbone
    from sightline.backbones.towered import Towered


def preprocess(
    backbone: Towered, image: Image.Image, into: Tensor | None = None, *, budget: Budget | None = None
) -> Pixels:
    """What the host does: all of it for a model on the CPU, else no more than the image's bytes.

    Under a ``budget`` the image is made small enough for the model to make no more tokens than that.
    """
    started = time.perf_counter()
    fit = None if budget is None else backbone.fit(image.size, budget)
    backbone = backbone if fit is None else backbone.under(fit.options)
    data = backbone.image_bytes(image, into)
    grid = backbone.patch_grid(*data.shape[:2])
    if backbone.language.device.type == "cpu":
        data = backbone.pixel_values(data)
    return Pixels(data, grid, image.size, (time.perf_counter() - started) * 1e3, fit)


def fit(backbone: Backbone, size: tuple[int, int], budget: Budget) -> Fit:
    """How an image of this (width, height) meets a budget; at its usual size if that does."""
    n = backbone.token_count(size)
    k = budget.resolve(n)
    return Fit(backbone.fitting(size, k) if k < n else backbone.options, n)


def token_count(backbone: Towered, size: tuple[int, int]) -> int:
    """N for an image of this (width, height), from arithmetic alone."""
    width, height = size
    grid = backbone.patch_grid(*backbone.altered_size(height, width))
    return len(backbone.cells_of(Pixels(torch.empty(0), grid, size, 0.0))[0])


def under(backbone: AnyBackbone, options: ImageOptions | None) -> AnyBackbone:
    """The same model, its memory of limits and tables included, with other image options; None changes nothing."""
    if options is None:
        return backbone
    changed = copy.copy(backbone)
    changed.options = options
    return changed


def image_bytes(backbone: Towered, image: Image.Image, into: Tensor | None = None) -> Tensor:
    """(H, W, 3) uint8, or (H, W, 4) with a byte to ignore in pinned memory if a GPU will fetch it.

    ``into`` is memory to be reused.
    """
    altered = backbone.altered(image if image.mode == "RGB" else image.convert("RGB"))
    if backbone.language.device.type == "cpu":
        return torch.from_numpy(np.array(altered))
    if into is None:
        into = torch.empty(altered.height, altered.width, 4, dtype=torch.uint8, pin_memory=True)
    stored = stored_pixels(altered)
    into.numpy()[..., : stored.shape[-1]] = stored
    return into


def pixel_values(backbone: Towered, image: Tensor) -> Tensor:
    """The image processor's pixel values (float32) of (H, W, 3 or 4) bytes, on the device the bytes are on."""
    return backbone.preparing(image)(image)


def preparing(backbone: Towered, data: Tensor) -> Callable[[Tensor], Tensor]:
    """What turns ``Pixels.data`` like this one, moved to the model's device, into pixel values."""
    if data.dtype != torch.uint8:
        return lambda values: values
    height, width = data.shape[:2]
    values = backbone.pixel_pipeline(height, width, data.device)
    return lambda image: values(image[..., :3])


def normaliser(backbone: Towered, device: torch.device) -> Normaliser:
    """Bytes to normalised floats by table; one table per device."""
    if device not in backbone.normalisers:
        backbone.normalisers[device] = Normaliser(backbone.byte_values(), device)
    return backbone.normalisers[device]


def tower_inputs(backbone: Towered, batch: Sequence[Pixels]) -> Tensor:
    """Pixel values of all images of the batch, on the model's device and in its dtype."""
    device = backbone.language.device
    values = [backbone.under(item.options).pixel_values(item.data.to(device, non_blocking=True)) for item in batch]
    return torch.cat(values).to(backbone.language.dtype)


@torch.inference_mode()
def encode(backbone: Backbone, batch: Sequence[Pixels], needs: Iterable[str] = ()) -> list[Encoded]:
    """Vision tower once over the batch, keeping what the signals in ``needs`` are read from.

    Each image is billed its share of the time.
    """
    watch = Stopwatch(backbone.language.device, shared_by=len(batch))
    encoded = backbone.vision(batch, frozenset(needs))
    watch.stop()
    backbone.encoded_images += len(batch)
    return [
        replace(item, preprocess_ms=pixels.preprocess_ms, vision_time=watch)
        for item, pixels in zip(encoded, batch, strict=True)
    ]


def vision(backbone: Towered, batch: Sequence[Pixels], needs: frozenset[str]) -> list[Encoded]:
    """One call of the vision tower and projector for all images of the batch, cells attached."""
    keep = hidden_indices(needs, len(backbone.vision_blocks))
    tower = backbone.tower([item.grid for item in batch])
    encoded = backbone.seen(batch, tower, *tower(backbone.tower_inputs(batch), keep, backbone.call_block))
    if PIXELS not in needs:
        return encoded
    shown = [item.data.to(backbone.language.device, non_blocking=True) for item in batch]
    return [with_pixels(*pair) for pair in zip(encoded, shown, strict=True)]


def with_pixels(encoded: Encoded, shown: Tensor) -> Encoded:
    """The encoded image with ``Pixels.data``, on the model's device, from which its pixel values can be made again."""
    return replace(encoded, captured={**encoded.captured, PIXELS: shown})


def seen(
    backbone: Towered,
    batch: Sequence[Pixels],
    tower: Tower | None,
    outputs: Sequence[Tensor],
    states: Mapping[int, Tensor],
) -> list[Encoded]:
    """What the tower returned for a batch, image by image; without a tower, no states were kept."""
    placed = [backbone.under(item.options).cells_of(item) for item in batch]
    tokens, cells = outputs[0].flatten(0, -2).shape[0], sum(len(cells) for cells, _ in placed)
    if tokens != cells:
        raise SightlineError(
            f"{type(backbone).__name__}: {tokens} visual tokens but {cells} cells; "
            "the token-to-cell map does not fit this checkpoint"
        )
    patches = [item.grid[0] * (item.grid[1] * item.grid[2] + backbone.class_tokens) for item in batch]
    parts = [torch.split(output.flatten(0, -2), [len(cells) for cells, _ in placed]) for output in outputs]
    stored = {} if tower is None else backbone.captured(tower, states)
    kept = {name: torch.split(rows.flatten(0, -2), patches) for name, rows in stored.items()}
    return [
        Encoded(
            tokens=parts[0][i],
            deepstack=tuple(level[i] for level in parts[1:]),
            cells=cells,
            layout=layout,
            sampling=backbone.sampling(item),
            captured={name: rows[i] for name, rows in kept.items()},
            usual_n=None if item.fit is None else item.fit.usual_n,
        )
        for i, (item, (cells, layout)) in enumerate(zip(batch, placed, strict=True))
    ]
