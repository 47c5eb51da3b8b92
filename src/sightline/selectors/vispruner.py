"""VisPruner: attended tokens first, then the remainder thinned of duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, Ranges, Selection, TokenView, build_form
from sightline.selectors import SELECTORS
from sightline.selectors.fastervlm import CLASS_ATTENTION, RECEIVED, token_attention
from sightline.selectors.greedy import gram, stack, unit
from sightline.selectors.scores import rank

FEATURES = "vision.hidden@-2"
DROPPED_PER_ROUND = 8


def thin(similarity: Tensor, pool: Tensor, size: int) -> Tensor:
    """Drops near-duplicates from ``pool`` (B, R) until (B, size) are left; similarity (B, N, N) is symmetric.

    A round splits the pool into even positions A and odd positions B, scores each a in A by its largest similarity to
    any b, drops the 8 highest-scoring of A (fewer in the last round) and goes on with A in descending score order,
    then B. The pool's length after each round is known beforehand, so no shape depends on the data.
    """
    images, n, _ = similarity.shape
    rows = similarity.reshape(images * n, n)
    first_row = torch.arange(images, device=pool.device).unsqueeze(1) * n
    if size == 0:
        return pool[:, :0]
    while pool.shape[1] > size:
        drop = min(DROPPED_PER_ROUND, pool.shape[1] - size)
        even, odd = pool[:, ::2], pool[:, 1::2]
        # Similarity is symmetric: the maximum over rows of B, whole and cheap to gather, read at the columns of A.
        near = rows.index_select(0, (odd + first_row).flatten()).view(images, -1, n)
        closest = near.amax(dim=1).gather(1, even)
        pool = torch.cat([even.gather(1, rank(closest))[:, drop:], odd], dim=1)
    return pool


def vispruner_kept(features: Tensor, attention: Tensor, k: int, important: int) -> Tensor:
    """features (B, N, D), attention (B, N) -> (B, k) ascending: the most attended, and the rest thinned to fit.

    Similarities are summed in float64: the order within the pool decides who meets whom in the next round, so a pair
    that another order of summation swaps would, a few rounds later, have changed almost every choice.
    """
    by_attention = rank(attention)
    diverse = thin(gram(unit(features.double())).float(), by_attention[:, important:], k - important)
    return torch.cat([by_attention[:, :important], diverse], dim=1).sort(dim=1).values


@SELECTORS.register("vispruner")
@dataclass(frozen=True)
class VisPruner(BatchSelector):
    """Keeps the most attended patches and, of the others, those left when near-duplicates are dropped round by round.

    Reference: "Beyond Text-Visual Attention: Exploiting Visual Cues for Effective Token Pruning in VLMs" (2025).
    Needs: penultimate vision features and class-token attention of the penultimate layer, averaged over heads.
    Parity: official-algorithm. Equal to the public code in every recorded case; none of them hangs on rounding. Other
    inputs do: the order of the pool decides who meets whom in the next round, so one pair that rounding swaps changes
    most later choices: docs/methods.md has how often, for the public code in two precisions and for Sightline.
    Acts: deletes before the language model.
    Degenerate inputs: where N minus the important count is odd the published code raises; here the even half of the
    pool is one token longer. Zero-norm features have cosine 0; ties go to the lower rank in attention.

    Parameters
    ----------
    important_ratio: share of K chosen by attention alone, rounded down.
    """

    important_ratio: float = 0.5

    name: ClassVar[str] = "vispruner"
    parity: ClassVar[Parity] = "official-algorithm"
    ranges: ClassVar[Ranges] = {"important_ratio": (0.0, 1.0)}
    attention: ClassVar[str] = CLASS_ATTENTION
    needs: ClassVar[frozenset[str]] = frozenset({FEATURES, CLASS_ATTENTION})
    official_ms: ClassVar[float] = 79.0

    def other_form(self, blocks: int) -> VisPruner:
        return build_form(ReceivedVisPruner, self)

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        features = stack([view.signals[FEATURES] for view in views])
        attention, important = token_attention(views, self.attention, torch.float64), int(k * self.important_ratio)
        return [Selection(kept) for kept in vispruner_kept(features, attention, k, important)]


class ReceivedVisPruner(VisPruner):
    """Important are the tokens that receive most attention in the last block; duplicates as ever."""

    form: ClassVar[str] = (
        "the attention a token receives in the last block, as the public code has it for SigLIP; its authors do so on "
        "Qwen2.5-VL too (issue 1 of their repository), there with merged tokens as features"
    )
    attention: ClassVar[str] = RECEIVED
    needs: ClassVar[frozenset[str]] = frozenset({FEATURES, RECEIVED})
