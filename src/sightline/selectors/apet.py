"""ApET: keep the tokens that a few basis tokens approximate worst, and let them absorb the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import Parity, Ranges, Selection, Selector, TokenView
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import cosine
from sightline.selectors.scores import rank

HIDDEN = "vision.hidden@-2"
RIDGE = 1e-5
"""Added to the diagonal of the normal equations, so that basis tokens that depend on one another can be solved for."""


def farthest_points(features: Tensor, count: int) -> Tensor:
    """(count,) tokens of (N, D) in pick order: the one farthest from the mean, then each farthest from all picked."""
    squared = (features - features.mean(dim=0)).square().sum(dim=1)
    picks = []
    for _ in range(count):
        pick = squared.argmax()
        picks.append(pick)
        away = (features - features[pick]).square().sum(dim=1)
        squared = away if len(picks) == 1 else torch.minimum(squared, away)
        squared[torch.stack(picks)] = -torch.inf
    return torch.stack(picks)


def approximation_errors(features: Tensor, basis: Tensor) -> Tensor:
    """How far each token is from the best linear combination of the basis, (N,).

    features (N, D), basis (M,) int64. With B the basis tokens:  e_i = |x_i - B^T (B B^T + ridge I)^-1 B x_i|_2.
    """
    spanning = features[basis]
    normal = spanning @ spanning.mT
    normal.diagonal().add_(RIDGE)
    # A Cholesky solve would wait for the device to report success; solve_ex does not ask.
    weights, _ = torch.linalg.solve_ex(normal, spanning @ features.mT)
    errors: Tensor = torch.linalg.vector_norm(features - weights.mT @ spanning, dim=1)
    return errors


def absorbing(features: Tensor, basis: Tensor, leading: Tensor) -> Tensor:
    """mix (K, N), K = M + T: basis tokens alone, then each leading token averaged with the dropped ones most like it.

    basis (M,), leading (T,); a dropped token joins the leading token of highest cosine, ties to the lower place.
    """
    n = len(features)
    kept = torch.cat([basis, leading])
    mix = torch.zeros(len(kept), n, device=features.device)
    if len(leading):
        nearest = cosine(features, features[leading]).argmax(dim=1)
        joins = torch.ones(n, device=features.device).index_fill_(0, kept, 0.0)
        mix[len(basis) + nearest, torch.arange(n, device=features.device)] = joins
    mix[torch.arange(len(kept), device=features.device), kept] = 1.0
    return mix / mix.sum(dim=1, keepdim=True)


@SELECTORS.register("apet")
@dataclass(frozen=True)
class ApET(Selector):
    """Keeps a small basis and what it approximates worst: a token that others can be added up to tells nothing new.

    Reference: Ma et al., "ApET: Approximation-Error Guided Token Compression for Efficient VLMs" (CVPR 2026), the stage
    before the language model.
    Needs: projected tokens, or with ``at=vision`` the penultimate vision states, as published for LLaVA.
    Parity: paper-algorithm, no parity data. Left to us: the first basis token, which is the one farthest from the mean
    (the others by farthest-point sampling, Euclidean); that the basis takes up to half of a small K; that a dropped
    token joins a kept one outside the basis. The published second stage, the same cut inside the language model, is
    not part of it.
    Acts: keeps ``basis`` tokens as they are and the K - ``basis`` tokens of largest error (``approximation_errors``);
    every other token is **merged** into the most similar of the latter, as a plain mean.
    Degenerate inputs: equal errors and similarities go to the lower index; a zero vector has similarity 0. K = 1 keeps
    the token of largest error, averaged with all others; K = N merges nothing.

    Parameters
    ----------
    basis: number of basis tokens.
    at: ``tokens`` works on projected tokens, which every architecture has; ``vision`` before the projector.
    """

    basis: int = 10
    at: Literal["tokens", "vision"] = "tokens"

    name: ClassVar[str] = "apet"
    parity: ClassVar[Parity] = "paper-algorithm"
    merges: ClassVar[bool] = True
    ranges: ClassVar[Ranges] = {"basis": (1, 100_000)}

    def __post_init__(self) -> None:
        if self.basis < 1:
            raise SightlineError(f"apet: basis must be at least 1, got {self.basis}")
        if self.at not in ("tokens", "vision"):
            raise SightlineError(f"apet: at must be 'tokens' or 'vision', got {self.at!r}")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({HIDDEN}) if self.at == "vision" else frozenset()

    def select(self, view: TokenView, k: int) -> Selection:
        features = (view.signals[HIDDEN] if self.at == "vision" else view.tokens).double()
        basis = farthest_points(features, min(self.basis, len(features)))
        errors = approximation_errors(features, basis)
        spared = basis[: min(self.basis, k // 2)]
        errors[spared] = -torch.inf
        leading = rank(errors)[: k - len(spared)].sort().values
        return Selection(torch.cat([spared, leading]), absorbing(features, spared, leading), merge_at=self.at)
