"""ZOO-Prune: keep tokens that the projector reacts to, and that differ from those kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import SENSITIVITY, BatchSelector, Parity, Selection, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import cosines, farthest_greedy, stack


def sensitive_order(tokens: Tensor, sensitivity: Tensor, k: int) -> Tensor:
    """tokens (B, N, D), sensitivity (B, N) -> (B, k) in pick order.

    With s in 0..1 the sensitivity between its extremes, all 1 where they are equal: argmax s first, then each time
    argmax_i s_i * min_{j picked} (1 - cos_ij).
    """
    least, most = sensitivity.double().aminmax(dim=1, keepdim=True)
    weight = torch.where(most > least, (sensitivity - least) / (most - least + 1e-8), 1.0)
    first = weight.argmax(dim=1, keepdim=True)
    return farthest_greedy(cosines(tokens), weight, first, torch.ones_like(first[:, 0]), ceiling=2.0, k=k)


@SELECTORS.register("zooprune")
@dataclass(frozen=True)
class ZOOPrune(BatchSelector):
    """Keeps tokens whose disturbed states move the projector's output most, each unlike those kept; no attention.

    Reference: Kim et al., "ZOO-Prune: Training-Free Token Pruning via Zeroth-Order Gradient Estimation in
    Vision-Language Models" (CVPR 2026).
    Needs: how far the projector moves each token if its state is disturbed along 64 directions by 0.01
    (``projector.sensitivity``), and the states themselves; architectures whose projector takes single states.
    Costs: 128 passes of the projector over all N states, once per image, and N^2 cosines of projected tokens.
    Parity: official-algorithm. Equal to the public code for LLaVA-1.5 in float32, given the directions. That code draws
    them anew for every image; here they are drawn once for all. It disturbs in half precision, where 0.01 along 1024
    channels is below the rounding of a state; here that depends on the precision the model is loaded in. What both do
    to its own choices is in docs/methods.md. K is given, there int(ratio N).
    Acts: deletes before the language model.
    Degenerate inputs: equal sensitivities count alike; once every distance or weight is 0 the lowest unpicked indices
    follow; a zero-norm token is at distance 1 from everything.
    """

    name: ClassVar[str] = "zooprune"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({SENSITIVITY, "vision.hidden@-2"})
    unpublished: ClassVar[str] = "its authors publish code for LLaVA and LLaVA-NeXT alone"

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        sensitivity = stack([view.signals[SENSITIVITY] for view in views])
        order = sensitive_order(stack([view.tokens for view in views]), sensitivity.nan_to_num(), k)
        return [Selection(anchors) for anchors in order.sort(dim=1).values]
