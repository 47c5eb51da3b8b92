"""PACT: drop the tokens that the image itself does not ask for, then merge the rest within a bounded distance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sightline.core.selection import LayerSelector, LayerState, Parity, Ranges, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import cosines
from sightline.selectors.scores import top

BANDWIDTH = 2.0
"""Distance at which another token's part in the density has fallen to 1 / e."""
HALVINGS = 24
"""Steps in which the distance bound is narrowed down: to 2^-22 of cosine distances, which lie in [0, 2]."""


def importance(queries: Tensor, keys: Tensor, hidden: Tensor, image: Tensor) -> Tensor:
    """How much the prompt up to the last visual token asks for each of them, times its length.

    queries (H, m, d), keys (Hkv, m, d) before rotation, of the m positions up to the last visual token; hidden (n, D)
    of the visual ones, image (n,) where they are -> (n,) float32:
    s_i = |h_i|_2 * mean over heads of softmax_i(<k_i, q> / sqrt(d)), q = mean_j q_j, i and j over the m.
    """
    keys = keys.float().repeat_interleave(queries.shape[0] // keys.shape[0], dim=0)
    together = queries.float().mean(dim=1)
    answers = (keys @ together.unsqueeze(-1)).squeeze(-1) / math.sqrt(keys.shape[-1])
    lengths: Tensor = torch.linalg.vector_norm(hidden.float(), dim=-1)
    return answers.softmax(dim=-1).mean(dim=0)[image] * lengths


def key_distances(keys: Tensor) -> NDArray[np.float64]:
    """(n, n) d = max(0, 1 - cosine) between rows of keys (n, heads * d)."""
    similarity = cosines(keys.unsqueeze(0))[0].double()
    distances: NDArray[np.float64] = (1.0 - similarity).clamp_min(0.0).fill_diagonal_(0.0).cpu().numpy()
    return distances


def by_density(distance: NDArray[np.float64]) -> NDArray[np.int64]:
    """(m,) from the densest down, rho_i = sum_j exp(-(d_ij / BANDWIDTH)^2); equal ones go to the lower index."""
    return np.argsort(-np.exp(-np.square(distance / BANDWIDTH)).sum(axis=1), kind="stable")


def bounded_centres(distance: NDArray[np.float64], ranked: NDArray[np.int64], bound: float) -> list[int]:
    """Centres in the order ``ranked``: a token is one if no centre before it lies within ``bound``. distance (m, m)."""
    free = np.ones(len(ranked), dtype=bool)
    centres = []
    for token in ranked.tolist():
        if free[token]:
            centres.append(token)
            free &= distance[token] > bound
    return centres


def density_centres(distance: NDArray[np.float64], k: int) -> tuple[list[int], float]:
    """The k densest of at least k centres, and the bound that leaves so many: slightly larger ones leave fewer.

    A larger bound can now and then leave more centres, so there may be several such; halving finds one of them.
    Below a bound of 0 every token is a centre.
    """
    ranked = by_density(distance)
    low, high = -1.0, 2.0
    found = ranked.tolist()
    for _ in range(HALVINGS):
        bound = (low + high) / 2
        centres = bounded_centres(distance, ranked, bound)
        if len(centres) >= k:
            low, found = bound, centres
        else:
            high = bound
    return found[:k], low


def gathered(
    distance: NDArray[np.float64], playing: NDArray[np.int64], centres: NDArray[np.int64], reach: float
) -> Tensor:
    """(K, n) mix: every token in play, and every other one within ``reach``, joins its nearest centre, as a plain mean.

    distance (n, n), playing (m,) and centres (K,) ascending; ties go to the earlier centre.
    """
    gap = distance[:, centres]
    nearest = gap.argmin(axis=1)
    nearest[centres] = np.arange(len(centres))
    member = np.isin(np.arange(len(distance)), playing) | (gap.min(axis=1) <= reach)
    mix = torch.zeros(gap.shape[::-1])
    mix[torch.from_numpy(nearest[member]), torch.from_numpy(np.flatnonzero(member))] = 1.0
    return mix / mix.sum(dim=1, keepdim=True)


@SELECTORS.register("pact")
@dataclass(frozen=True)
class PACT(LayerSelector):
    """Unimportant tokens are dropped without looking at attention; duplicates among the others become one mean each.

    Reference: Dhouib et al., "PACT: Pruning and Clustering-Based Token Reduction for Faster Visual Language Models"
    (CVPR 2025).

    Importance (``importance``) is how well a token's key answers the mean query of the prompt up to the last visual
    token, times the length of its hidden state; the share ``keep`` of the n tokens stays in play. These are clustered
    by distance-bounded density peaks on rotated keys, d = 1 - cosine over all heads together: from the densest token
    down, a token is a centre if no centre lies within the bound. Every token in play joins its nearest centre; a
    dropped one comes back to its nearest centre if it lies within ``recovery`` bounds. A cluster becomes its **mean**,
    at the centre's place.
    Needs ``lm.bare_query``, ``lm.bare_key``, ``lm.key`` and ``lm.input``, all of the layer that just ran.
    Schedule: ``full_layers`` layers run on the full sequence, then K tokens continue; in a shallow model the cut moves
    up to the last layer but one.
    Count: the published bound (0.21 with ``keep`` 0.55) gives every image its own number of clusters. Here the bound is
    widened until fewer than K centres would be left, and the K densest of them are taken; ``keep`` n is at least K.
    Parity: official-algorithm. Importance, centres, clusters and means equal the public code's, given the bound. It
    takes queries, keys and hidden states as the next layer would, from its input; here they are those of the layer that
    just ran. Its attention counts a cluster as often as it has members; ours counts it once.
    Degenerate input: a zero key is at distance 1 from everything; equal values go to the lower index.
    """

    name: ClassVar[str] = "pact"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.bare_query", "lm.bare_key", "lm.key", "lm.input"})
    merges: ClassVar[bool] = True
    ranges: ClassVar[Ranges] = {"keep": (0.0, 1.0), "recovery": (0.0, 1e6), "full_layers": (1, inf)}

    keep: float = 0.55
    """Share of the tokens that importance leaves in play."""
    recovery: float = 1.5
    """Bounds within which a dropped token still joins a cluster."""
    full_layers: int = 4
    """Number of layers that see every token."""

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {max(0, min(self.full_layers - 1, layers - 2)): k}

    def cut(self, state: LayerState, k: int) -> Selection:
        signals = state.signals
        image = state.image.to(state.hidden.device)
        behind = int(state.image[-1]) + 1
        queries, keys = (signals[name][:, :behind] for name in ("lm.bare_query", "lm.bare_key"))
        score = importance(queries, keys, signals["lm.input"].index_select(0, image), image)
        playing = top(score, max(k, int(self.keep * len(image)))).cpu().numpy()
        distance = key_distances(signals["lm.key"].index_select(1, image).transpose(0, 1).flatten(1))
        places, bound = density_centres(distance[np.ix_(playing, playing)], k)
        centres = np.sort(playing[places])
        return Selection(torch.from_numpy(centres), gathered(distance, playing, centres, self.recovery * bound))
