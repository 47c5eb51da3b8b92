"""SparseVLM and AutoPrune: text rates the visual tokens; some of the rejected are recycled as cluster centroids."""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import LayerSelector, LayerState, Parity, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.fastervlm import CLASS_ATTENTION
from sightline.selectors.scores import rank, top

PUBLISHED_DEPTH = 32
PUBLISHED_TOKENS = 576
PUBLISHED_LAYERS = (2, 6, 15)
PUBLISHED_BUDGETS: dict[int, tuple[int, int, int]] = {
    192: (300, 200, 110),
    128: (303, 110, 36),
    96: (238, 48, 26),
    64: (66, 30, 17),
}
"""Average number of visual tokens -> tokens kept as they are at each of the three layers (centroids come on top)."""


def raters(embeds: Tensor, visual: slice, text: slice) -> Tensor:
    """Text tokens that the image points at more than at the average one, indices into ``text``.

    embeds (L, D) input embeddings: r_t = mean over visual i of softmax_t(<v_i, e_t>); kept where r_t > mean r. Every
    text token rates when none stands out.
    """
    relevance = (embeds[visual].float() @ embeds[text].float().mT).softmax(dim=-1).mean(dim=0)
    chosen = torch.nonzero(relevance > relevance.mean()).squeeze(1)
    return chosen if chosen.numel() else torch.arange(relevance.shape[0], device=embeds.device)


def rated(attention: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Attention that the raters pay each visual token, mean over heads and raters.

    attention (H, Q, L), rows (R,) rater queries, columns (n,) visual keys -> (n,) float32.
    """
    return attention.index_select(1, rows).index_select(2, columns).float().mean(dim=0).mean(dim=0)


def recycled_count(n: int, kept: int) -> int:
    """How many of the n - kept rejected tokens are recycled."""
    return int(0.3 * (n - kept)) + 1


def cluster_count(n: int, kept: int) -> int:
    """How many centroids the recycled tokens become."""
    return recycled_count(n, kept) // 10 + 1


def kept_count(n: int, k: int) -> int:
    """How many tokens stay as they are so that, together with the centroids of the public recycling rule, k < n
    continue.

    Where two counts fit, the larger. When the rule alone makes k centroids or more (k below about 3% of n), one token
    stays.
    """
    fitting = (kept for kept in range(k - 1, 0, -1) if kept + cluster_count(n, kept) == k)
    return next(fitting, 1)


def density_peaks(points: Tensor, clusters: int, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Density-peak clustering with ``clusters`` centres.

    points (m, D), noise (m,) in [0, 1) -> centres (c,) by descending peak score, assignment (m,) in 0..c-1.
    d_ij = |x_i - x_j| / sqrt(D); rho_i = exp(-mean of the c smallest d_ij^2, itself included) + 1e-6 noise_i;
    delta_i = distance to the nearest denser point, the largest distance of all for the densest; centres maximise
    rho * delta; every other point joins the nearest centre.
    """
    points = points.double()
    gram = points @ points.mT
    square = (gram.diagonal().unsqueeze(0) + gram.diagonal().unsqueeze(1) - 2.0 * gram).clamp_min(0.0)
    distance = square.fill_diagonal_(0.0).sqrt() / math.sqrt(points.shape[-1])
    nearest = distance.topk(clusters, dim=-1, largest=False).values
    density = (-nearest.square().mean(dim=-1)).exp() + 1e-6 * noise.to(points)
    denser = density.unsqueeze(0) > density.unsqueeze(1)
    isolation = torch.where(denser, distance, distance.max()).amin(dim=-1)
    centres = rank(isolation * density)[:clusters]
    assignment = distance.index_select(1, centres).argmin(dim=-1)
    assignment[centres] = torch.arange(clusters, device=points.device)
    return centres, assignment


def keep_and_recycle(
    score: Tensor, hidden: Tensor, kept: int, clusters: int, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Splits n tokens into kept, recycled and deleted ones and writes the merge down as a matrix.

    score (n,), hidden (n, D), clusters >= 1, noise (m,) with m the number recycled -> kept (s,) ascending, recycled
    (m,) by descending score, centres (c,) in peak order and mix (s + c, n) float32: a one per kept token, 1 / (size +
    1e-6) over each cluster.
    """
    by_score = rank(score)
    stay, recycled = by_score[:kept].sort().values, by_score[kept : kept + noise.shape[0]]
    mix = hidden.new_zeros(kept + clusters, score.shape[0], dtype=torch.float32)
    mix[torch.arange(kept, device=score.device), stay] = 1.0
    centres, assignment = density_peaks(hidden.index_select(0, recycled), clusters, noise)
    mix[kept + assignment, recycled] = 1.0
    mix[kept:] /= mix[kept:].sum(dim=-1, keepdim=True) + 1e-6
    return stay, recycled, recycled[centres], mix


def drawn_noise(count: int, key: str) -> Tensor:
    """(count,) in [0, 1), drawn on the CPU from a key."""
    digest = hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()
    return torch.rand(count, generator=torch.Generator().manual_seed(int(digest[:15], 16)))


def published_counts() -> list[tuple[int, ...]]:
    """Tokens that continue past each cut, centroids included, for the published settings; fewest first."""
    settings = []
    for budgets in PUBLISHED_BUDGETS.values():
        n = PUBLISHED_TOKENS
        counts = []
        for budget in budgets:
            n = budget + cluster_count(n, budget)
            counts.append(n)
        settings.append(tuple(counts))
    return sorted(settings, key=lambda counts: counts[-1])


@SELECTORS.register("sparsevlm")
@dataclass(frozen=True)
class SparseVLM(LayerSelector):
    """The prompt's visually grounded words judge the visual tokens; part of what they reject is merged, not lost.

    Reference: "SparseVLM: Visual Token Sparsification for Efficient Vision-Language Model Inference" (ICML 2025),
    version 1.

    Raters are the text tokens behind the image whose share of the visual-text softmax of input embeddings exceeds the
    mean.
    Score: attention from the raters, mean over heads and raters. The best stay as they are; of the rejected, the best
    floor(0.3 m) + 1 are clustered by density peaks and continue as centroids; the rest is deleted. A centroid's
    anchor is the token at the centre of its cluster. Centroids count: K is kept tokens plus centroids.
    Needs ``lm.attention`` and ``lm.embeds``. The image part of ``lm.embeds`` may be that of the whole prompt at every
    cut (then raters are the public ones throughout) or of the surviving tokens.
    Schedule: cuts after layers 2, 6 and 15, moved in proportion when the model has no more than 16 layers. The counts
    are N (K/N)^e with the exponents e of the published settings, interpolated over log(K/N), so the published counts
    come back for 576 tokens and K = 113, 39, 27 or 18 (settings 192, 128, 96, 64, centroids included).
    Density noise, which decides between mutual neighbours of equal density, is drawn on the CPU from ``seed`` and the
    key.
    Parity: official-algorithm; exact indices when the noise is the same.
    Degenerate input: no text behind the image: the last token rates; no word stands out: all rate; identical points:
    noise and then the lower index decide; a budget too small for the recycling rule keeps one token and K - 1
    centroids.
    """

    name: ClassVar[str] = "sparsevlm"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.attention", "lm.embeds"})
    merges: ClassVar[bool] = True
    official_ms: ClassVar[float] = 94.0

    seed: int = 17

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        if k == n:
            return {max(0, min(PUBLISHED_LAYERS[0], layers - 2)): n}
        reach = math.log(k / n)
        settings = published_counts()
        depths = [[math.log(count / PUBLISHED_TOKENS) for count in counts] for counts in settings]
        upper = bisect_left([depth[-1] for depth in depths], reach)
        below, above = depths[max(upper - 1, 0)], depths[min(upper, len(depths) - 1)]
        blend = 0.0 if above is below else (reach - below[-1]) / (above[-1] - below[-1])
        counts: dict[int, int] = {}
        for stage, layer in enumerate(PUBLISHED_LAYERS):
            if layers <= PUBLISHED_LAYERS[-1] + 1:
                layer = round(layer * layers / PUBLISHED_DEPTH)
            exponent = (1.0 - blend) * below[stage] / below[-1] + blend * above[stage] / above[-1]
            counts[max(0, min(layer, layers - 2))] = max(k, round(n * math.exp(exponent * reach)))
        return counts

    def cut(self, state: LayerState, k: int) -> Selection:
        n, length = state.image.shape[0], state.hidden.shape[0]
        image = state.image.to(state.hidden.device)
        if k >= n:
            return Selection(anchors=torch.arange(n, device=image.device))
        attention, embeds = state.signals["lm.attention"], state.signals["lm.embeds"]
        first, behind = int(state.image[0]), length - 1 - int(state.image[-1])
        if behind:
            text = slice(embeds.shape[0] - behind, None)
            rows = raters(embeds, slice(first, text.start), text) + (length - behind)
        else:
            rows = torch.tensor([length - 1], device=image.device)
        score = rated(attention, rows, image)
        kept = kept_count(n, k)
        if kept == k:
            return Selection(anchors=top(score, k))
        noise = drawn_noise(recycled_count(n, kept), f"{self.seed}:{state.key}")
        stay, _, centres, mix = keep_and_recycle(score, state.hidden.index_select(0, image), kept, k - kept, noise)
        return Selection(anchors=torch.cat((stay, centres)), mix=mix)


# AutoPrune: SparseVLM's cuts at every layer. Every question has its own curve of tokens over the layers, and all curves
# have the same area.

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
        noise = drawn_noise(recycled_count(n, kept), f"{self.seed}:{state.key}:{state.layer}")
        hidden = state.hidden.index_select(0, image)
        stay, _, centres, mix = keep_and_recycle(score, hidden, kept, cluster_count(n, kept), noise)
        return Selection(anchors=torch.cat((stay, centres)), mix=mix)
