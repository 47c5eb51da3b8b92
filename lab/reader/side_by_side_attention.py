"""Attention of packed questions: who sees whom, and rotary positions."""

from __future__ import annotations

import torch
from torch import Tensor


def question_mask(segments: Tensor, visible: Tensor) -> Tensor:
    """(B, 1, 1 + Q, S + 1 + Q) bool: what the closing vision token and the packed questions behind it may attend to.

    A token sees what of the shared part is visible, the closing token, and earlier tokens of its own question.

    Parameters
    ----------
    segments: (B, Q) int, the question of each packed token; padding has a number of its own.
    visible: (B, S) bool, of the shared part before the closing token.
    """
    batch, device = segments.shape[0], segments.device
    closing = torch.full((batch, 1), -1, dtype=segments.dtype, device=device)
    of = torch.cat((closing, segments), dim=1)
    place = torch.arange(of.shape[1], device=device)
    same = (of[:, None, :] == -1) | (of[:, :, None] == of[:, None, :])
    text = (place[:, None] >= place[None]) & same
    return torch.cat((visible[:, None].expand(-1, of.shape[1], -1), text), dim=2)[:, None]


def as_bias(mask: Tensor, like: Tensor) -> Tensor:
    """Zero where ``mask``, minus infinity elsewhere, in the type that matrix products of ``like`` run in."""
    kind = like.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else like.dtype
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, float("-inf"))


def rotate(part: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding in float32: x * cos + rotate_half(x) * sin."""
    part = part.float()
    first, second = part.chunk(2, dim=-1)
    return part * cos.float() + torch.cat((-second, first), dim=-1) * sin.float()
