"""AutoPrune: SparseVLM's cuts at every layer, by a curve of each question's own; all curves have the same area."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import LayerSelector, LayerState, Parity, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.fastervlm import CLASS_ATTENTION
from sightline.selectors.recycling import cluster_count, cut_and_recycled
from sightline.selectors.scores import top

WIDE, TEXT_WEIGHT, HEIGHT = 2.5, 0.3, 0.75
"""Tokens behind the first layer for each of K, what the text counts there, and the curve's height before scaling."""
TINY = 1e-6


def information(attention: Tensor) -> Tensor:
    """Mutual information of text and image, sum over heads, in bits, from attention (H, T, n) of T text rows.

    I = sum_h sum_ti p_ti log2(p_ti / (p_i / T)) with p_ti = a_hti / T and p_i = sum_t p_ti; rows are not made to add
    up to 1 over the image.
    """
    joint = attention.float() / attention.shape[1]
    ratio = joint / (joint.sum(dim=1, keepdim=True) / attention.shape[1] + TINY)
    return (joint * ratio.clamp_min(TINY).log2()).sum()


def curve(steepness: float, centre: float, layers: int) -> list[float]:
    """Share of the tokens that stay past layers 1, 2, ..., before scaling: falling logistically."""
    middle = centre + steepness
    return [HEIGHT / (1.0 + math.exp(min(700.0, steepness * (layer - middle)))) for layer in range(1, layers)]


def area(shares: list[float], n: int) -> int:
    """Tokens behind the first layer, n, and behind every later one, added up, centroids of what is dropped included."""
    total = left = n
    for share in shares:
        kept = math.ceil((n - 1) * min(1.0, share))
        left = kept + (cluster_count(left, kept) if left != kept else 0)
        total += left
    return total


def scaled(shares: list[float], n: int, k: int) -> list[float]:
    """The curve times what makes its area as near as possible to K per layer, found by halving."""
    wanted, plain = k * (len(shares) + 1), [int(n * share) for share in shares]
    if not shares or abs(sum(plain) + plain[-1] - wanted) < 1:
        return shares
    low, high, best, nearest = 0.0, 20.0, 1.0, math.inf
    for _ in range(200):
        times = (low + high) / 2
        found = area([share * times for share in shares], n)
        if abs(found - wanted) < nearest:
            nearest, best = abs(found - wanted), times
        if not nearest:
            break
        low, high = (times, high) if found < wanted else (low, times)
    return [best * share for share in shares]


@SELECTORS.register("autoprune")
@dataclass(frozen=True)
class AutoPrune(LayerSelector):
    """The more text and image tell about each other, the later tokens go: a curve over the layers for each question.

    Reference: Wang et al., "Each Complexity Deserves a Pruning Policy" (AutoPrune, NeurIPS 2025).

    First cut, behind the first layer: 2.5 K tokens by the class token's attention plus 0.3 I / T times the text's, mean
    over heads and the T text positions behind the image (I: ``information``). Behind the second layer I is computed
    anew; the steepness max(0, ``k0`` - ``gamma`` I) of a logistic ``curve`` around layer ``x0`` says how many of the
    tokens stay past every later layer, scaled so that its ``area`` is K per layer. Each of these cuts keeps the tokens
    that the text attends to most and recycles some of the others as centroids, as SparseVLM does.
    Budget: K is a mean over the layers, in the public count: that leaves out the first layer, which reads all N tokens,
    and counts what is left behind the last, so layers really read up to N / layers more (``keep`` in the rows). The
    counts depend on the question, so questions are answered one by one.
    Costs: reads the class token's attention in the tower, and attention of every layer.
    Parity: official-algorithm. Equal to the public code, tokens, centroids and counts over all layers, given its noise
    (here drawn from ``seed`` and the key). Centroids stand where their centre stood, there behind the other tokens;
    positions are preserved, there renumbered; nothing is cut behind the last layer. ``x0`` is a number of layers
    whatever the depth, as published for 32 and 40.
    Degenerate input: without text behind the image its last position asks; equal scores keep the first tokens.

    Parameters
    ----------
    x0: layer around which the curve falls. k0, gamma: its steepness without information, and what a bit takes off.
    """

    name: ClassVar[str] = "autoprune"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({CLASS_ATTENTION, "lm.attention"})
    merges: ClassVar[bool] = True
    varies: ClassVar[bool] = True
    budget_counts: ClassVar[Literal["kept", "layers"]] = "layers"
    unpublished: ClassVar[str] = "no form of it is published for images without a class token"

    x0: float = 14.9
    k0: float = 0.4
    gamma: float = 0.2
    seed: int = 17

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return dict.fromkeys(range(max(1, layers - 1)), min(n, int(WIDE * k)) if k < n else n)

    def cut(self, state: LayerState, k: int) -> Selection:
        n, image = len(state.image), state.image.to(state.hidden.device)
        if state.budget >= sum(rows * columns for rows, columns in state.layout):
            return Selection(torch.arange(n))
        behind = min(int(state.image[-1]) + 1, state.hidden.shape[0] - 1)
        asked = state.signals["lm.attention"][:, behind:].index_select(2, image)
        score = asked.float().mean(dim=(0, 1))
        if state.layer == 0 or "counts" not in state.memory:
            told = information(asked)
            if state.layer == 0:
                seen = state.signals[CLASS_ATTENTION].float().mean(dim=0)[state.source.to(image.device)]
                return Selection(top(seen + TEXT_WEIGHT * told / asked.shape[1] * score, k))
            shares = curve(max(0.0, self.k0 - self.gamma * float(told)), self.x0, state.layers)
            state.memory["counts"] = [math.ceil((n - 1) * share) for share in scaled(shares, n, state.budget)]
        kept = min(n, state.memory["counts"][state.layer - 1])
        if kept == n:
            return Selection(torch.arange(n))
        key = f"{self.seed}:{state.key}:{state.layer}"
        return cut_and_recycled(state, score, kept, cluster_count(n, kept), key)
