"""ApET: keep the tokens that a few basis tokens approximate worst, and let them absorb the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import (
    LayerSelector,
    LayerState,
    Parity,
    Ranges,
    Selection,
    Selector,
    TokenView,
    TwoStages,
)
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import gram
from sightline.selectors.scores import NORM_FLOOR, half_way, rank

HIDDEN = "vision.hidden@-2"
RIDGE = 1e-5
"""Added to the diagonal of the normal equations, so that basis tokens that depend on one another can be solved for."""


def farthest_from_mean(products: Tensor) -> Tensor:
    """(1,) the token with the largest |x_i - mean|^2 = <x_i, x_i> - 2 mean_j <x_i, x_j> + constant, products (N, N)."""
    return (products.diagonal() - 2.0 * products.mean(dim=1)).argmax().unsqueeze(0)


def farthest_points(products: Tensor, first: Tensor, count: int) -> Tensor:
    """(count,) tokens in pick order, products (N, N) = <x_i, x_j>: ``first`` (1,), then each farthest from all picked,
    |x_i - x_j|^2 = <x_i, x_i> + <x_j, x_j> - 2 <x_i, x_j>."""
    squares = products.diagonal()
    gap = torch.full_like(squares, torch.inf)
    taken = torch.zeros_like(gap, dtype=torch.bool)
    picks = [first]
    for _ in range(count):
        pick = picks[-1]
        taken.index_fill_(0, pick, True)
        away = (squares + squares[pick] - 2.0 * products.index_select(0, pick)[0]).clamp_min(0.0)
        gap = torch.minimum(gap, away)
        picks.append(gap.masked_fill(taken, -torch.inf).argmax().unsqueeze(0))
    return torch.cat(picks[:count])


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


def compressed(products: Tensor, basis: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """anchors (K,) and mix (K, N): M basis tokens as they are, then the K - M of largest error with what joins them.

    products (N, N), basis (B,) in pick order, M = min(B, K // 2). Of the tokens by falling error, the basis last, the
    first K - M lead, the next M are dropped, and all behind them, the basis too, join the leading token of highest
    cosine, ties to the lower place; each output is a plain mean.
    """
    n = len(products)
    spared = basis[: k // 2]
    ranked = rank(approximation_errors(products, basis).index_fill_(0, spared, -torch.inf))
    leading, joining = ranked[: k - len(spared)].sort().values, ranked[k:]
    lengths = products.diagonal().sqrt().clamp_min(NORM_FLOOR)
    if k == 0:
        return leading, products.new_zeros(0, n, dtype=torch.float32)
    nearest = (products[joining][:, leading] / lengths[leading]).argmax(dim=1)
    kept = torch.cat([spared, leading])
    mix = torch.zeros(k, n, device=products.device)
    mix[torch.arange(k, device=products.device), kept] = 1.0
    mix[len(spared) + nearest, joining] = 1.0
    return kept, mix / mix.sum(dim=1, keepdim=True)


@SELECTORS.register("apet")
@dataclass(frozen=True)
class ApET(Selector):
    """Keeps a small basis and what it approximates worst: a token that others can be added up to tells nothing new.

    Reference: Ma et al., "ApET: Approximation-Error Guided Token Compression for Efficient VLMs" (CVPR 2026), the stage
    before the language model.
    Needs: projected tokens, or with ``at=vision`` the penultimate vision states, as published for LLaVA.
    Parity: official-algorithm. Equal to the public code for LLaVA, tokens and merge, given the first basis token. That
    code draws it anew each time, and two of its draws agree no better than one of them with ours (docs/methods.md);
    here it is the token farthest from the mean, so that results repeat. Other departures: ``at=tokens`` is the default;
    basis tokens stand at their own places, there at those of the tokens that they push out; the basis takes up to half
    of a small K, where that code needs K > ``basis``. Its form for Qwen2.5-VL (basis and pushed-out tokens averaged) is
    not part of it; its second stage, the same inside the language model, is ``apet_inside``, both are ``apet_both``.
    Acts: keeps ``basis`` tokens as they are, picked by farthest-point sampling (Euclidean), and the K - ``basis``
    tokens of largest error (``approximation_errors``); the next ``basis`` tokens by error are lost, as published; every
    other token, the basis included, is **merged** into the most similar of the K - ``basis``, as a plain mean.
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
    parity: ClassVar[Parity] = "official-algorithm"
    merges: ClassVar[bool] = True
    ranges: ClassVar[Ranges] = {"basis": (1, 100_000)}

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({HIDDEN}) if self.at == "vision" else frozenset()

    def select(self, view: TokenView, k: int) -> Selection:
        features = view.signals[HIDDEN] if self.at == "vision" else view.tokens
        products = gram(features.double().unsqueeze(0))[0]  # squares cancel in errors, hence float64
        basis = farthest_points(products, farthest_from_mean(products), min(self.basis, len(features)))
        return Selection(*compressed(products, basis, k), merge_at=self.at)


# Its second stage, inside the language model.


@SELECTORS.register("apet_inside")
@dataclass(frozen=True)
class ApETInside(LayerSelector):
    """Half-way through, keeps a small basis of hidden states and what it approximates worst; no attention is read.

    Reference: Ma et al., "ApET: Approximation-Error Guided Token Compression for Efficient VLMs" (CVPR 2026), the cut
    in the language model; the stage before it is ``apet``.

    Acts: **merges**, as ``apet`` does (``compressed``), the visual tokens' hidden states behind a layer.
    Schedule: K tokens continue once half of the layers have run, 16 of 32 as published for LLaVA-1.5; in a shallow
    model the cut moves up to the last layer but one.
    Parity: official-algorithm. Equal to the public code, tokens and merge, given the first basis token, which that code
    draws and ``apet`` takes farthest from the mean. Basis tokens stand at their own places, there at those of the
    tokens that they push out; positions are preserved, there renumbered.
    Degenerate inputs: equal errors and similarities go to the lower index; a zero vector has similarity 0.
    """

    name: ClassVar[str] = "apet_inside"
    parity: ClassVar[Parity] = "official-algorithm"
    merges: ClassVar[bool] = True
    ranges: ClassVar[Ranges] = {"basis": (1, 100_000), "depth": (0.0, 1.0)}

    basis: int = 10
    """Number of basis tokens."""
    depth: float = 0.5
    """Part of the layers that see every token."""

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {half_way(layers, self.depth): k}

    def cut(self, state: LayerState, k: int) -> Selection:
        hidden = state.hidden.index_select(0, state.image.to(state.hidden.device))
        products = gram(hidden.double().unsqueeze(0))[0]  # squares cancel in errors, hence float64
        basis = farthest_points(products, farthest_from_mean(products), min(self.basis, len(hidden)))
        return Selection(*compressed(products, basis, k))


@SELECTORS.register("apet_both")
@dataclass(frozen=True)
class ApETBoth(TwoStages, ApET, ApETInside):
    """Tokens that others add up to are merged before the language model and once more half-way through it.

    Reference: Ma et al., "ApET: Approximation-Error Guided Token Compression for Efficient VLMs" (CVPR 2026).

    Stages: ``apet``, then ``apet_inside`` on what it leaves, with the arguments of both.
    Budget: K is the mean over the language layers. Published for a mean of 64 in LLaVA-1.5 are 96 tokens that
    reach the model and 32 behind layer 16: 3/2 K, a third of it left.
    Costs: what both stages read, the first once per image, the second between layers.
    Parity: official-algorithm, as far as each stage has it. Both stages have the
    same number of basis tokens.
    """

    name: ClassVar[str] = "apet_both"
    parity: ClassVar[Parity] = "official-algorithm"
    ranges: ClassVar[Ranges] = {"share": (0.0, 1.0)}

    share: float = 1 / 3
