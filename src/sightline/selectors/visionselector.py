"""VisionSelector: a trained scorer between projector and language model says which tokens matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, Selection, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import at_least_float32, stack
from sightline.selectors.heads import Headed, Parts, biased
from sightline.selectors.scores import top


def learned_scores(tokens: Tensor, head: dict[str, Tensor]) -> Tensor:
    """tokens (..., N, D) -> (..., N): score_i = mean_j <q_i, k_j> / sqrt(h), q = W_q x + b_q, k = W_k x + b_k.

    The mean is linear in k_j, so it is the product with one mean key, and W_q is applied to that key instead of to
    every token: the N x N products of the published form are never made.
    """
    key = tokens.mean(dim=-2) @ head["k_proj.weight"].T + head["k_proj.bias"]
    weights = key @ head["q_proj.weight"]
    same = (key * head["q_proj.bias"]).sum(dim=-1, keepdim=True)
    return ((tokens @ weights.unsqueeze(-1)).squeeze(-1) + same) / sqrt(key.shape[-1])


@SELECTORS.register("visionselector")
@dataclass(frozen=True)
class VisionSelector(Headed, BatchSelector):
    """Keeps the tokens that a scorer trained with the model still frozen gives the highest scores.

    Reference: Zhu et al., "VisionSelector: End-to-End Learnable Visual Token Compression for Efficient Multimodal LLMs"
    (2025).
    Needs: projected tokens, and ``head``: query and key projections with biases, published for Qwen2.5-VL-3B and 7B and
    for LLaVA-OneVision-1.5-8B. The score of a token is its mean product with the keys of all (``learned_scores``).
    Parity: exact-index, given K; the public code keeps int(N * budget), at least 1. Its differentiable top-k is for
    training; what it infers with is the plain one here.
    Acts: deletes; positions are preserved there.
    Degenerate inputs: equal scores go to the lower index; NaN counts as 0.
    """

    name: ClassVar[str] = "visionselector"
    parity: ClassVar[Parity] = "exact-index"
    parts: ClassVar[Parts] = biased("q_proj", "inner size", "width") | biased("k_proj", "inner size", "width")
    prefixes: ClassVar[tuple[str, ...]] = ("", "visual.importance_scorer.", "model.visual.importance_scorer.")

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        tokens = at_least_float32(stack([view.tokens for view in views]))
        scores = learned_scores(tokens, self.tensors(tokens)).nan_to_num()
        return [Selection(anchors) for anchors in top(scores, k)]
