"""Bytes of an image as normalised floats, looked up: a value depends on its channel and its byte alone.

The table holds what the image processor's own arithmetic gives for each of the 256 bytes, so a looked-up value equals
the processor's to the bit, on any device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

CHANNELS, BYTES = 3, 256


def processor_table(processor: Any) -> Tensor:
    """(3, 256) float32: each byte, rescaled and normalised by the processor's own methods."""
    values = np.tile(np.arange(BYTES, dtype=np.uint8), (CHANNELS, 1, 1))
    values = processor.rescale(values, processor.rescale_factor)
    values = processor.normalize(values, processor.image_mean, processor.image_std)
    return torch.from_numpy(np.asarray(values, dtype=np.float32)).reshape(CHANNELS, BYTES)


def tensor_table(processor: Any) -> Tensor:
    """(3, 256) float32: the same in torch's single precision, as processors on tensors compute it."""
    mean, spread = (torch.tensor(v)[:, None] for v in (processor.image_mean, processor.image_std))
    return (torch.arange(BYTES, dtype=torch.uint8) * float(processor.rescale_factor) - mean) / spread


class Normaliser:
    """(..., 3, h, w) uint8 -> (..., 3, h, w) float32 by table."""

    def __init__(self, table: Tensor, device: torch.device) -> None:
        self._values = table.flatten().to(device)
        self._rows = torch.arange(0, CHANNELS * BYTES, BYTES, dtype=torch.int32, device=device)[:, None, None]

    def __call__(self, planes: Tensor) -> Tensor:
        planes = planes.contiguous()  # rearranges one byte a pixel rather than four
        if planes.device.type != "cpu":
            return self._values[planes + self._rows]
        values = torch.empty(planes.shape, dtype=self._values.dtype)
        # Indices take four times the image's bytes: they are made part by part, so that they stay in the cache.
        for part, out in zip(planes, values, strict=True):
            torch.index_select(self._values, 0, (part + self._rows).flatten(), out=out.view(-1))
        return values
