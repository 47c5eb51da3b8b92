"""DivPrune: max-min diversity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, Selection, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import cosines, farthest_greedy, stack


def divprune_order(tokens: Tensor, k: int) -> Tensor:
    """tokens (B, N, D) -> (B, k) in pick order, by cosine distance.

    The first pick is the token whose nearest neighbour is farthest; each later one is farthest from its nearest pick.
    """
    similarity = cosines(tokens)
    similarity.diagonal(dim1=1, dim2=2).fill_(-torch.inf)  # a token is not its own neighbour
    first = (1.0 - similarity.amax(dim=2)).argmax(dim=1, keepdim=True)
    uniform = similarity.new_ones(similarity.shape[:2])
    return farthest_greedy(similarity, uniform, first, torch.ones_like(first[:, 0]), ceiling=2.0, k=k)


@SELECTORS.register("divprune")
@dataclass(frozen=True)
class DivPrune(BatchSelector):
    """Keeps tokens that are far apart: greedy max-min cosine distance, blind to the question.

    Reference: Alvar et al., "DivPrune: Diversity-based Visual Token Pruning for Large Multimodal Models" (CVPR 2025).
    Needs: projected tokens.
    Parity: exact-index.
    Acts: deletes before the language model.
    Degenerate inputs: once every distance is 0 (fewer distinct tokens than K) the lowest unpicked indices follow, where
    the published code repeats a pick; a zero-norm token is at distance 1 from everything.
    """

    name: ClassVar[str] = "divprune"
    parity: ClassVar[Parity] = "exact-index"
    official_ms: ClassVar[float] = 75.0

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        order = divprune_order(stack([view.tokens for view in views]), k)
        return [Selection(anchors) for anchors in order.sort(dim=1).values]
