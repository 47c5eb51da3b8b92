"""SparseVLM: text rates the visual tokens; some of the rejected are recycled as cluster centroids."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import LayerSelector, LayerState, Parity, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.recycling import cluster_count, cut_and_recycled
from sightline.selectors.scores import top

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


def kept_count(n: int, k: int) -> int:
    """How many tokens stay as they are so that, together with the centroids of the public recycling rule, k < n
    continue.

    Where two counts fit, the larger. When the rule alone makes k centroids or more (k below about 3% of n), one token
    stays.
    """
    fitting = (kept for kept in range(k - 1, 0, -1) if kept + cluster_count(n, kept) == k)
    return next(fitting, 1)


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
        return cut_and_recycled(state, score, kept, k - kept, f"{self.seed}:{state.key}")
