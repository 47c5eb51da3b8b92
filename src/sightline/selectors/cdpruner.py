"""CDPruner: conditional diversity, a determinantal point process weighted by relevance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, QuerySpan, Selection, TokenView, build_form
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import at_least_float32, cosines, residual_greedy, stack, text_dissimilarity

WEIGHT = 0.5
"""How much relevance counts where plain diversity counts too."""


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


def blended_order(tokens: Tensor, text: Tensor, k: int) -> Tensor:
    """tokens (B, N, D), text (B, D) -> (B, k) in pick order: greedy MAP inference of (1 - w) cos_ij + w r_i cos_ij r_j.

    r is how like the text a token is, from 0 for the least to 1 for the most of an image; w is ``WEIGHT``.
    """
    likeness = -text_dissimilarity(tokens, text.unsqueeze(1))
    low, high = likeness.amin(dim=1, keepdim=True), likeness.amax(dim=1, keepdim=True)
    relevance = (likeness - low) / (high - low + 1e-6)
    weights = relevance.unsqueeze(1) * relevance.unsqueeze(2)
    kernel = cosines(tokens).mul_(weights.mul_(WEIGHT).add_(1.0 - WEIGHT))
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

    def other_form(self, blocks: int) -> CDPruner:
        return build_form(TextCDPruner, self)

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        scores = stack([text_dissimilarity(view.signals["clip.image"], view.signals["clip.text"]) for view in views])
        order = cdpruner_order(stack([view.tokens for view in views]), conditional_relevance(scores), k)
        return [Selection(anchors) for anchors in order.sort(dim=1).values]


class TextCDPruner(CDPruner):
    """Diversity within either half of the tokens, half of it weighed by likeness to the prompt's mean embedding.

    On Qwen2.5-VL the authors take projected tokens for relevance and diversity (issue 7 of their repository), and
    publish no code of that. OpenVINO GenAI ships such a form: this kernel, on either half of the tokens with half of K.
    It leaves the two markers around an image out of the mean, here they are part of the prompt; and it computes in the
    precision that its device prefers, here in float32 at least.
    """

    form: ClassVar[str] = (
        "by likeness to the prompt's mean embedding, in either half of the tokens by itself, as OpenVINO GenAI ships "
        "it for Qwen2-VL, 2.5 and 3; its authors ran it on Qwen2.5-VL, and publish no code of that"
    )
    query: ClassVar[QuerySpan] = "prompt"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset()

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        tokens = stack([view.tokens for view in views])
        text = stack([at_least_float32(view.query).sum(dim=0) / max(1, len(view.query)) for view in views])
        half = tokens.shape[1] // 2
        picks = [blended_order(tokens[:, :half], text, k // 2)] if half else []
        rest = blended_order(tokens[:, half:], text, k - (k // 2 if half else 0))
        order = torch.cat([*picks, rest + half], dim=1)
        return [Selection(anchors) for anchors in order.sort(dim=1).values]
