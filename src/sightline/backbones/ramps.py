"""Which place of the source image each pixel value of an image processor comes from, whatever the processor does.

Ramps go through the processor in place of a picture: where a ramp has the level s j at source pixel j, the level that a
pixel value shows tells its place. Eight bits hold 256 levels, so a long axis takes several ramps, each of which rises
over a part of it and is flat before and behind,

    ramp_k(j) = low + clip(s j - k (high - low), 0, high - low),    sum_k (ramp_k(j) - low) = s j.

Resampling is linear, so the sum stays straight through it, kinks included: only the rounding of the ramps that are not
flat there is left, half a level each. Levels keep away from 0 and 255 because bicubic filters overshoot at a kink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sightline.errors import SightlineError

Prepare = Callable[[Image.Image], Mapping[str, Tensor]]
"""An image processor: a picture -> pixel values and whatever else the tower is told (grids, sizes, masks)."""
Floats = NDArray[np.float32]

LOW, HIGH = 16, 239
"""Levels of a ramp."""
SLOPE = 2
"""Levels per source pixel: half a level of rounding is a quarter of a pixel."""
GRAIN = 64
"""Places are rounded to this part of a source pixel: the channels of one pixel, normalised each its way, agree then."""
PADDED = 0.25
"""A pixel value that tells black from white by less than this share of what others do is padding."""


@dataclass(frozen=True)
class Sources:
    """Where pixel values come from, in source pixels: pixel j reaches from j to j + 1. NaN: padding.

    One channel tells as much as three: the others are left out where the processor keeps channels apart.
    """

    values: NDArray[np.int64]
    """(P,) places of the values told about among all of them, flattened"""
    x: Floats
    """(P,)"""
    y: Floats
    """(P,)"""


def sources(size: tuple[int, int], prepare: Prepare, pixels: str) -> Sources:
    """Where the pixel values of an image of this (width, height) come from."""
    width, height = size
    black, white, red = (_values(prepare, size, np.array(colour), pixels) for colour in (0, 255, (255, 0, 0)))
    if not black.shape == white.shape == red.shape:
        raise SightlineError(
            "this image processor makes different shapes of pictures of one size: it looks at their content, so what "
            "is found for one picture does not hold for another"
        )
    shown = np.abs(white - black)
    padding = shown < PADDED * shown.max()
    values = np.flatnonzero(padding | (red != black))
    black, white = black[values], white[values]
    white[padding[values]] = np.nan
    scale = 255 / (white - black)

    def place(ramps: Iterator[NDArray[np.uint8]]) -> Floats:
        climbed = np.zeros_like(black)
        for ramp in ramps:
            climbed += (_values(prepare, size, ramp[..., None], pixels)[values] - black) * scale - LOW
        rounded = (np.round(climbed / SLOPE * GRAIN) / GRAIN + 0.5).astype(np.float32)
        return rounded

    return Sources(values, place(_ramps(width)), place(ramp[:, None] for ramp in _ramps(height)))


def _ramps(length: int) -> Iterator[NDArray[np.uint8]]:
    """(length,) each; see the top of this file."""
    levels = SLOPE * np.arange(length)
    for start in range(0, int(levels[-1]) + 1, HIGH - LOW):
        yield (LOW + np.clip(levels - start, 0, HIGH - LOW)).astype(np.uint8)


def _values(prepare: Prepare, size: tuple[int, int], colours: NDArray[Any], pixels: str) -> Floats:
    """(all,) pixel values of a picture whose (H, W, 3) bytes ``colours`` can be spread over."""
    width, height = size
    picture = np.broadcast_to(colours, (height, width, 3)).astype(np.uint8)
    values: Floats = prepare(Image.fromarray(picture))[pixels].float().flatten().cpu().numpy()
    return values
