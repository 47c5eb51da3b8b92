"""FasterVLM: the class token's attention alone decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, Selection, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import stack
from sightline.selectors.scores import top

CLASS_ATTENTION = "vision.cls_attention@-2"


def head_mean(attention: Tensor) -> Tensor:
    """(..., H, N) class-token attention per head -> (..., N) float32 mean over heads."""
    return attention.float().mean(dim=-2)


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

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        attention = stack([view.signals[CLASS_ATTENTION] for view in views])
        return [Selection(kept) for kept in top(head_mean(attention), k)]
