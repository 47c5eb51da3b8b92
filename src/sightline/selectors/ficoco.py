"""FiCoCo-L: filter redundant tokens, correlate them with others, compress them into those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import LayerSelector, LayerState, Parity, Ranges, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.scores import rank

OWN = 0.6
"""What the image counts against the text, in redundancy and in correlation."""
QUANTILE = 0.998
"""Of a token's correlations, those above are where it goes."""


def raw_scores(query: Tensor, key: Tensor) -> Tensor:
    """(L, L) <q_i, k_j> / sqrt(d) of every pair, unmasked, mean over heads. query (H, L, d), key (Hkv, L, d)."""
    heads, _, width = query.shape
    key = key.float().repeat_interleave(heads // len(key), dim=0)
    mean: Tensor = torch.einsum("hid,hjd->ij", query.float(), key) / (heads * width**0.5)
    return mean


def compressed(scores: Tensor, image: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """anchors (k,) ascending and mix (k, n) from raw scores (L, L) and the n visual positions.

    Filter: the n - k tokens of greatest redundancy 0.6 sum_j s_ij - 0.4 mean_t s_it go, j over the image, t over the
    text behind it. Correlate: c_ij = 0.6 s_ij + 0.4 sum_t s_it s_tj, not with itself. Compress: each goes to where c_ij
    is above its quantile, shared out by softmax, and is added there; what goes to one that goes itself is lost.
    """
    n, behind = len(image), min(int(image[-1]) + 1, len(scores) - 1)
    image = image.to(scores.device)
    rows = scores.index_select(0, image)
    among, to_text = rows.index_select(1, image), rows[:, behind:]
    redundancy = OWN * among.sum(dim=1) - (1.0 - OWN) * to_text.mean(dim=1)
    going = rank(redundancy)[: n - k]
    stays = torch.ones(n, dtype=torch.bool, device=scores.device).index_fill(0, going, False)
    correlation = OWN * among + (1.0 - OWN) * to_text @ scores[behind:].index_select(1, image)
    correlation.fill_diagonal_(-torch.inf)
    targets = max(1, n - 1 - int(QUANTILE * (n - 1)))
    values, where = correlation.index_select(0, going).topk(targets, dim=1)
    mix = torch.eye(n, device=scores.device)
    mix[where, going.unsqueeze(1)] = values.softmax(dim=1)
    return stays.nonzero()[:, 0], mix[stays]


@SELECTORS.register("ficoco_l")
@dataclass(frozen=True)
class FiCoCoL(LayerSelector):
    """Tokens that resemble much of the image and little of the text flow into what they correlate with, layer by layer.

    Reference: Han et al., "Filter, Correlate, Compress: Training-Free Token Reduction for MLLM Acceleration" (AAAI
    2026), the form inside the language model (FiCoCo-L).

    Acts: **merges** (``compressed``) behind every layer from the share ``start`` of the depth on, equally many tokens
    each time, so that K are left behind the last layer but one; published are layers from 5 on, or from 12 on, of 32.
    Scores are those of the layer that just ran, before mask and softmax, mean over heads.
    Costs: reads queries and keys of every such layer, and multiplies image by text by image.
    Parity: official-algorithm. Tokens and weights of one merge are those of the public functions. That code merges
    between the attention and the feed-forward part of a layer, here behind both (docs/methods.md has how far that
    leads); it takes the first N positions of the prompt for the image and never merges the first of them, here these
    are the image's own; positions are preserved, there renumbered. The form in the vision tower (FiCoCo-V) is not part
    of it.
    Degenerate input: without text behind the image its last position stands for it; equal scores go to the lower index.
    """

    name: ClassVar[str] = "ficoco_l"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.query", "lm.key"})
    merges: ClassVar[bool] = True
    ranges: ClassVar[Ranges] = {"start": (0.0, 1.0)}

    start: float = 5 / 32
    """Part of the layers behind which nothing is merged yet."""

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        first = max(0, min(round(self.start * layers), layers - 2))
        cuts = range(first, max(first + 1, layers - 1))
        return {layer: n - round((n - k) * place / len(cuts)) for place, layer in enumerate(cuts, start=1)}

    def cut(self, state: LayerState, k: int) -> Selection:
        return Selection(*compressed(raw_scores(state.signals["lm.query"], state.signals["lm.key"]), state.image, k))
