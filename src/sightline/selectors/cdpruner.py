"""CDPruner: conditional diversity, a determinantal point process weighted by relevance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, QuerySpan, Selection, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import cosines, residual_greedy, stack, text_dissimilarity


def conditional_relevance(dissimilarity: Tensor, across_batch: bool = False) -> Tensor:
    """(B, N) -> (B, N): (r - min + 1e-6) / (max - min), per image; equal scores all become 1.

    ``across_batch`` takes min and max over the whole batch as the published code does, so images influence each other.
    """
    axes = (0, 1) if across_batch else (1,)
    low, high = dissimilarity.amin(dim=axes, keepdim=True), dissimilarity.amax(dim=axes, keepdim=True)
    shifted = dissimilarity - low + 1e-6
    return shifted / (high - low).clamp_min(1e-6)


def cdpruner_order(tokens: Tensor, relevance: Tensor, k: int) -> Tensor:
    """tokens (B, N, D), relevance (B, N) -> (B, k) in pick order: greedy MAP inference of the kernel r_i cos_ij r_j."""
    kernel = cosines(tokens).mul_(relevance.unsqueeze(1)).mul_(relevance.unsqueeze(2))
    volume = kernel.diagonal(dim1=1, dim2=2)
    return residual_greedy(kernel, volume, bias=torch.zeros_like(volume), k=k)


@SELECTORS.register("cdpruner")
@dataclass(frozen=True)
class CDPruner(BatchSelector):
    """Keeps the subset with the greatest determinant: tokens that matter for the question and differ from one another.

    Reference: Zhang et al., "Beyond Attention or Similarity: Maximizing Conditional Diversity for Token Pruning in
    MLLMs" (NeurIPS 2025).
    Needs: projected tokens, CLIP-projected patches and CLIP embeddings of the question.
    Parity: exact-index.
    Acts: deletes before the language model.
    Degenerate inputs: beyond the rank of the kernel only rounding noise is left to choose by (the published code turns
    NaN and repeats itself), with K distinct tokens all the same; zero-norm tokens have no volume and come last; equal
    relevance everywhere counts as 1 instead of dividing by 0.
    """

    name: ClassVar[str] = "cdpruner"
    query: ClassVar[QuerySpan] = "question"
    parity: ClassVar[Parity] = "exact-index"
    needs: ClassVar[frozenset[str]] = frozenset({"clip.image", "clip.text"})
    official_ms: ClassVar[float] = 87.0
    unpublished: ClassVar[str] = "its authors ran it on Qwen2.5-VL, and publish no code of that"

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        scores = stack([text_dissimilarity(view.signals["clip.image"], view.signals["clip.text"]) for view in views])
        order = cdpruner_order(stack([view.tokens for view in views]), conditional_relevance(scores), k)
        return [Selection(anchors) for anchors in order.sort(dim=1).values]
