"""SCOPE: saliency-weighted facility-location coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, Ranges, Selection, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import at_least_float32, cosines, cover_greedy, stack

Combined = Literal["multi", "add"]


def scope_order(features: Tensor, saliency: Tensor, k: int, combined: Combined = "multi") -> Tensor:
    """features (B, N, D), saliency (B, N) >= 0 already raised to alpha -> (B, k) in pick order.

    Greedy coverage of the tokens by their cosines; a gain counts times the saliency (``multi``) or plus it (``add``).
    """
    similarity = cosines(features)
    if combined == "multi":
        return cover_greedy(similarity, weight=saliency, bias=torch.zeros_like(saliency), k=k)
    return cover_greedy(similarity, weight=torch.ones_like(saliency), bias=saliency, k=k)


@SELECTORS.register("scope")
@dataclass(frozen=True)
class Scope(BatchSelector):
    """Keeps tokens that cover the whole feature set, each gain in coverage weighted by the class token's attention.

    Reference: Deng et al., "SCOPE: Saliency-Coverage Oriented Token Pruning for Efficient Multimodel LLMs" (NeurIPS
    2025).
    Needs: penultimate vision features and class-token attention summed over heads; features alone for alpha = 0.
    Parity: exact-index.
    Acts: deletes before the language model.
    Degenerate inputs: once everything is covered (fewer distinct tokens than K) the lowest unpicked indices follow; a
    zero-norm token covers nothing (in the published code it turns every gain into NaN).

    Parameters
    ----------
    alpha: exponent of the saliency; 0 is pure coverage.
    combined: gain times saliency (``multi``) or gain plus saliency (``add``).
    """

    alpha: float = 1.0
    combined: Combined = "multi"

    name: ClassVar[str] = "scope"
    parity: ClassVar[Parity] = "exact-index"
    ranges: ClassVar[Ranges] = {"alpha": (0.0, inf)}
    official_ms: ClassVar[float] = 281.0
    unpublished: ClassVar[str] = "no form of it is published for images without a class token (alpha=0 reads none)"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"vision.hidden@-2"} | ({"vision.cls_attention@-2"} if self.alpha else set()))

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        features = stack([view.signals["vision.hidden@-2"] for view in views])
        if self.alpha:
            attention = [at_least_float32(view.signals["vision.cls_attention@-2"]).sum(dim=0) for view in views]
            saliency = stack(attention) ** self.alpha
        else:
            saliency = torch.ones(features.shape[:2], device=features.device)
        order = scope_order(features, saliency, k, self.combined)
        return [Selection(anchors) for anchors in order.sort(dim=1).values]
