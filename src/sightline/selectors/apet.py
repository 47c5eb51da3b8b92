"""ApET: keep the tokens that a few basis tokens approximate worst, and let them absorb the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import Parity, Ranges, Selection, Selector, TokenView
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import gram
from sightline.selectors.scores import NORM_FLOOR, rank

HIDDEN = "vision.hidden@-2"
RIDGE = 1e-5
"""Added to the diagonal of the normal equations, so that basis tokens that depend on one another can be solved for."""


def farthest_points(products: Tensor, count: int) -> Tensor:
    """(count,) tokens in pick order, products (N, N) = <x_i, x_j>: the farthest from the mean, then each farthest from
    all picked, |x_i - x_j|^2 = <x_i, x_i> + <x_j, x_j> - 2 <x_i, x_j>."""
    squares = products.diagonal()
    gap = squares - 2.0 * products.mean(dim=1)  # to the mean, up to a constant
    taken = torch.zeros_like(gap, dtype=torch.bool)
    picks = []
    for step in range(count):
        pick = gap.masked_fill(taken, -torch.inf).argmax().unsqueeze(0)
        picks.append(pick)
        taken.index_fill_(0, pick, True)
        away = (squares + squares[pick] - 2.0 * products.index_select(0, pick)[0]).clamp_min(0.0)
        gap = away if step == 0 else torch.minimum(gap, away)
    return torch.cat(picks)


def approximation_errors(products: Tensor, basis: Tensor) -> Tensor:
    """How far each token is from a linear combination of the basis, (N,): e_i = |x_i - B^T w_i|_2.

    products (N, N), basis (M,) int64. With B the basis tokens, w_i = (B B^T + ridge I)^-1 B x_i, so that
    e_i^2 = <x_i, x_i> - 2 <w_i, B x_i> + <w_i, B B^T w_i>.
    """
    projected = products[basis]
    normal = projected[:, basis]
    # Unlike solve, solve_ex does not wait for the device to report success.
    ridge = RIDGE * torch.eye(len(basis), dtype=normal.dtype, device=normal.device)
    weights, _ = torch.linalg.solve_ex(normal + ridge, projected)
    squared: Tensor = products.diagonal() - (weights * (2.0 * projected - normal @ weights)).sum(dim=0)
    return squared.clamp_min(0.0).sqrt()


def absorbing(products: Tensor, basis: Tensor, leading: Tensor) -> Tensor:
    """mix (K, N), K = M + T: basis tokens alone, then each leading token averaged with the dropped ones most like it.

    products (N, N), basis (M,), leading (T,); a dropped token joins the leading token of highest cosine, ties to the
    lower place.
    """
    n = len(products)
    kept = torch.cat([basis, leading])
    mix = torch.zeros(len(kept), n, device=products.device)
    if len(leading):
        lengths = products.diagonal().sqrt().clamp_min(NORM_FLOOR)
        nearest = (products[:, leading] / lengths[leading]).argmax(dim=1)
        joins = torch.ones(n, device=products.device).index_fill_(0, kept, 0.0)
        mix[len(basis) + nearest, torch.arange(n, device=products.device)] = joins
    mix[torch.arange(len(kept), device=products.device), kept] = 1.0
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
        features = view.signals[HIDDEN] if self.at == "vision" else view.tokens
        products = gram(features.double().unsqueeze(0))[0]  # squares cancel in errors, hence float64
        basis = farthest_points(products, min(self.basis, len(features)))
        errors = approximation_errors(products, basis)
        spared = basis[: k // 2]
        errors[spared] = -torch.inf
        leading = rank(errors)[: k - len(spared)].sort().values
        return Selection(torch.cat([spared, leading]), absorbing(products, spared, leading), merge_at=self.at)
