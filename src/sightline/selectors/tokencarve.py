"""TokenCarve: rank visual tokens by attention and by information, keep the best, merge the worst half of them back."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import LayerSelector, LayerState, Parity, Ranges, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.fastv import attention_score
from sightline.selectors.scores import NORM_FLOOR, rank


def information(visual: Tensor) -> Tensor:
    """How much each token adds to the span of all of them: with X = U S V^T, info_i = sum_j |U_ij| s_j.

    visual (..., n, D) -> (..., n) float64. U S is read off the eigenvectors of the smaller Gram matrix: U and
    sqrt(lambda) of X X^T when n <= D, X V with V of X^T X otherwise. Squaring costs half the digits, hence float64;
    it is still about ten times faster than the decomposition of X itself.
    """
    visual = visual.double()
    if visual.shape[-2] > visual.shape[-1]:
        directions: Tensor = torch.linalg.eigh(visual.mT @ visual).eigenvectors
        return (visual @ directions).abs().sum(dim=-1)
    energies: Tensor
    energies, directions = torch.linalg.eigh(visual @ visual.mT)
    return (directions.abs() * energies.clamp_min(0.0).sqrt().unsqueeze(-2)).sum(dim=-1)


def places(score: Tensor) -> Tensor:
    """n for the highest score down to 1 for the lowest, ties to the lower index: (..., n) -> (..., n) int64."""
    order = rank(score)
    descending = torch.arange(score.shape[-1], 0, -1, device=score.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, descending)


def merges(visual: Tensor, ranked: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Which tokens of the lower half of ``ranked`` are averaged into which of the upper half.

    visual (n, D), ranked (r,) int64 best first -> source (count,) and target (count,): each lower token's most
    similar upper token by cosine, the ``count`` most similar pairs first. The upper half is the shorter one when r is
    odd.
    """
    if count == 0:
        return ranked[:0], ranked[:0]
    half = ranked.shape[0] // 2
    upper, lower = ranked[:half], ranked[half:]
    unit = torch.nn.functional.normalize(visual.index_select(0, ranked).float(), dim=-1, eps=NORM_FLOOR)
    likeness, partner = (unit[half:] @ unit[:half].mT).max(dim=-1)
    chosen = rank(likeness)[:count]
    return lower[chosen], upper[partner[chosen]]


@SELECTORS.register("tokencarve")
@dataclass(frozen=True)
class TokenCarve(LayerSelector):
    """Attention says what is looked at, singular directions say what carries information; the two rankings are mixed.

    Reference: "TokenCarve: Information-Preserving Visual Token Compression in Multimodal Large Language Models"
    (2025).

    Ranking: weight * place by last-token attention + (1 - weight) * place by information (see ``information``). The
    best floor(1.5 K) stay; floor(K / 2) of their lower half are **merged** away, each into the most similar token of
    the upper half, as a plain mean that includes that token. Kept tokens are the anchors. Needs
    ``lm.attention_last``.
    Schedule: ``full_layers`` layers run on the full sequence, then K tokens continue; in a shallow model the cut
    moves up to the last layer but one.
    Parity: exact-index. The public code needs D >= n; here any shape works.
    Degenerate input: equal scores, places and similarities go to the lower index; a zero vector has similarity 0.
    When 1.5 K exceeds n all n are ranked and n - K merged.
    """

    name: ClassVar[str] = "tokencarve"
    parity: ClassVar[Parity] = "exact-index"
    ranges: ClassVar[Ranges] = {"full_layers": (1, inf), "weight": (0.0, 1.0)}
    needs: ClassVar[frozenset[str]] = frozenset({"lm.attention_last"})
    merges: ClassVar[bool] = True
    official_ms: ClassVar[float] = 1166.0

    ranking: Literal["both", "information", "attention"] = "both"
    weight: float = 0.5
    """Share of the attention place when both rankings count."""
    full_layers: int = 2
    """Number of layers that see every token."""

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {max(0, min(self.full_layers - 1, layers - 2)): k}

    def cut(self, state: LayerState, k: int) -> Selection:
        kept, source, target = self.carve(state, k)
        mix = torch.zeros(k, state.image.shape[0], device=kept.device)
        mix[torch.arange(k, device=kept.device), kept] = 1.0
        mix[torch.searchsorted(kept, target), source] = 1.0
        return Selection(anchors=kept, mix=mix / mix.sum(dim=-1, keepdim=True))

    def carve(self, state: LayerState, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Kept tokens (k,) ascending, and the pairs: ``source`` (m,) is averaged into ``target`` (m,)."""
        visual = state.hidden.index_select(0, state.image.to(state.hidden.device))
        ranked = rank(self._merit(state, visual))[: min(visual.shape[0], k + k // 2)]
        source, target = merges(visual, ranked, ranked.shape[0] - k)
        kept = ranked[~torch.isin(ranked, source)].sort().values
        return kept, source, target

    def _merit(self, state: LayerState, visual: Tensor) -> Tensor:
        if self.ranking == "information":
            return information(visual)
        attention = attention_score(state.signals["lm.attention_last"], state.image)
        if self.ranking == "attention":
            return attention
        return self.weight * places(attention).double() + (1.0 - self.weight) * places(information(visual)).double()
