"""The flat record in which a worker hands one training sample to the trainer: one int32 row, so one tensor a batch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lab.scenes.compose import MAX_GLYPHS, MAX_SHAPES

QUESTIONS = 12
"""Questions asked about one image."""
TEXT_LENGTH = 251
"""Packed tokens of all questions; with what they share in Qwen3-VL form this makes 456, a multiple of 8."""
TARGET_LENGTH = 24
"""Ids of the words that a question names."""
MOST_BOXES = 2
"""Words that a question names, and values that its answer is read from, at most."""

FIELDS: dict[str, tuple[tuple[int, ...], type]] = {
    "background": ((3,), int),
    "shapes": ((MAX_SHAPES, 4), int),
    "shape_colour": ((MAX_SHAPES,), int),
    "glyph": ((MAX_GLYPHS,), int),
    "glyph_x": ((MAX_GLYPHS,), int),
    "glyph_y": ((MAX_GLYPHS,), int),
    "glyph_colour": ((MAX_GLYPHS,), int),
    "effects": ((5,), float),
    "slot": ((MAX_GLYPHS,), int),
    "bigram": ((MAX_GLYPHS,), int),
    "in_words": ((1,), int),
    "ids": ((TEXT_LENGTH,), int),
    "segments": ((TEXT_LENGTH,), int),
    "positions": ((TEXT_LENGTH,), int),
    "labels": ((TEXT_LENGTH,), int),
    "kinds": ((TEXT_LENGTH,), int),
    "targets": ((QUESTIONS, TARGET_LENGTH), int),
    "boxes": ((QUESTIONS, MOST_BOXES, 4), float),
    "values": ((QUESTIONS, MOST_BOXES, 4), float),
}
"""Name -> (shape, type). See ``samples.build_sample`` for the meaning of each."""

_SIZES = [math.prod(shape) for shape, _ in FIELDS.values()]
WIDTH = sum(_SIZES)
STARTS = dict(zip(FIELDS, (sum(_SIZES[:index]) for index in range(len(_SIZES))), strict=True))


def views(row: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
    """Named views of one row of ``WIDTH`` int32 values; writing to a view writes the row."""
    out: dict[str, NDArray[Any]] = {}
    for name, (shape, kind) in FIELDS.items():
        part = row[STARTS[name] : STARTS[name] + math.prod(shape)]
        out[name] = (part.view(np.float32) if kind is float else part).reshape(shape)
    return out


def field(batch: Tensor, name: str) -> Tensor:
    """(B, *shape) view of one field of (B, WIDTH) int32 rows."""
    shape, kind = FIELDS[name]
    part = batch[:, STARTS[name] : STARTS[name] + math.prod(shape)].contiguous()
    return (part.view(torch.float32) if kind is float else part).view(batch.shape[0], *shape)


def unpack(batch: Tensor) -> dict[str, Tensor]:
    """(B, WIDTH) int32 -> named tensors (B, *shape); integers become int64."""
    parts = {name: field(batch, name) for name in FIELDS}
    return {name: part if part.is_floating_point() else part.long() for name, part in parts.items()}
