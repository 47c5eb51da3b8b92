"""G-Prune: importance flows along a graph of similar tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, Ranges, Selection, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import gram, stack, unit
from sightline.selectors.scores import top

NO_EDGE = -5000.0
"""Logit of an absent edge: its softmax weight is exactly 0 in float32 unless the whole row is absent."""


def flow_scores(tokens: Tensor, similarity: float, temperature: float, iterations: int) -> Tensor:
    """tokens (B, N, D) -> (B, N) float32.

    A = softmax_j(cos_ij / temperature) over the edges with cos_ij >= ``similarity``; score_i = (|z| A^iterations)_i /
    degree_i, where degree_i counts the positive weights of row i. The row vector is multiplied by A step by step:
    O(N^2), where a matrix power would cost O(N^3). All in float32, because the degree counts weights that do not
    underflow there.
    """
    tokens = tokens.float()
    edges = gram(unit(tokens))
    absent = edges < similarity
    edges.div_(temperature)
    absent |= edges.abs() < 1e-6  # an edge of weight 0 is none, which matters for thresholds at or below 0
    flow = torch.softmax(edges.masked_fill_(absent, NO_EDGE), dim=2)
    mass: Tensor = torch.linalg.vector_norm(tokens, dim=2)
    for _ in range(iterations):
        mass = torch.stack([row @ weights for row, weights in zip(mass, flow, strict=True)])
    return mass / (flow > 0.0).sum(dim=2)


@SELECTORS.register("gprune")
@dataclass(frozen=True)
class GPrune(BatchSelector):
    """Keeps the tokens that collect most norm per neighbour when it flows along a graph of cosine similarity.

    Reference: "What Kind of Visual Tokens Do We Need? Training-Free Visual Token Pruning for Multi-Modal Large
    Language Models from the Perspective of Graph" (2025).
    Needs: projected tokens only.
    Parity: exact-index.
    Acts: deletes before the language model.
    Degenerate inputs: a zero-norm token has no edges and spreads evenly over all tokens; equal scores (duplicates) go
    to the lower index.

    Parameters
    ----------
    similarity: cosine below which two tokens are not connected.
    temperature: softmax temperature of the edge weights.
    iterations: steps that the norm flows.
    """

    similarity: float = 0.5
    temperature: float = 0.03
    iterations: int = 5

    name: ClassVar[str] = "gprune"
    ranges: ClassVar[Ranges] = {"iterations": (0, 10_000), "temperature": (1e-12, inf)}
    parity: ClassVar[Parity] = "exact-index"
    official_ms: ClassVar[float] = 40.0

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        tokens = stack([view.tokens for view in views])
        scores = flow_scores(tokens, self.similarity, self.temperature, self.iterations)
        return [Selection(kept) for kept in top(scores, k)]
