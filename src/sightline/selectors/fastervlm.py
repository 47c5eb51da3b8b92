"""FasterVLM: the class token's attention alone decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, Selection, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import stack
from sightline.selectors.scores import top

CLASS_ATTENTION = "vision.cls_attention@-2"
RECEIVED = "vision.received@-1"
"""What published forms for towers without a class token go by instead."""


def head_mean(attention: Tensor) -> Tensor:
    """(..., H, N) class-token attention per head -> (..., N) float32 mean over heads."""
    return attention.float().mean(dim=-2)


def token_attention(views: Sequence[TokenView], signal: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """(B, N) head mean of a signal (H, N); received attention (N,) is one already."""
    attention = stack([view.signals[signal] for view in views]).to(dtype)
    return attention.mean(dim=1) if attention.dim() > 2 else attention


@SELECTORS.register("fastervlm")
@dataclass(frozen=True)
class FasterVLM(BatchSelector):
    """Keeps the K patches that the vision tower's class token attends to most.

    Reference: "[CLS] Attention is All You Need for Training-Free Visual Token Pruning: Make VLM Inference Faster"
    (2024).
    Needs: class-token attention of the penultimate vision layer, averaged over heads.
    Parity: exact-index.
    Acts: deletes before the language model.
    Degenerate inputs: equal scores go to the lower index; NaN scores rank first but still yield K distinct tokens.
    """

    name: ClassVar[str] = "fastervlm"
    parity: ClassVar[Parity] = "exact-index"
    needs: ClassVar[frozenset[str]] = frozenset({CLASS_ATTENTION})
    official_ms: ClassVar[float] = 0.1

    def other_form(self, blocks: int) -> FasterVLM:
        return ReceivedFasterVLM()

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        (attention,) = self.needs
        return [Selection(kept) for kept in top(token_attention(views, attention), k)]


class ReceivedFasterVLM(FasterVLM):
    """Keeps the K tokens that receive most attention in the last block."""

    form: ClassVar[str] = (
        "the attention a token receives in the last block, as its authors have it for SigLIP in VisPruner, which with "
        "important_ratio = 1 is FasterVLM"
    )
    needs: ClassVar[frozenset[str]] = frozenset({RECEIVED})
