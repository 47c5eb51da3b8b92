"""PruMerge and PruMerge+: attended patches absorb the patches whose keys resemble theirs."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, Ranges, Selection, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import stack, unit
from sightline.selectors.scores import rank

KEYS, CLASS_KEY, CLASS_QUERY = "vision.key@-1", "vision.cls_key@-1", "vision.cls_query@-1"
MERGED = "vision.hidden@-2"
"""What the mix acts on; the selector itself does not read it."""
NO_SOURCE = -1
LADDER_PER_CENTRE = 3


def class_attention(query: Tensor, class_key: Tensor, keys: Tensor) -> Tensor:
    """Single-head attention of the class token, a = softmax(q . k / sqrt(C)) over class token and patches.

    query, class_key (B, C), keys (B, N, C): all heads concatenated -> (B, N); the class entry is dropped, so rows sum
    to < 1.
    """
    everything = torch.cat([class_key.unsqueeze(1), keys], dim=1)
    logits = torch.stack([k @ q for k, q in zip(everything, query, strict=True)])
    return torch.softmax(logits / math.sqrt(query.shape[-1]), dim=-1)[:, 1:]


def merge_weights(attention: Tensor, keys: Tensor, centres: Tensor, neighbours: int = 32) -> Tensor:
    """attention (B, N), keys (B, N, C), centres (B, U) -> mix (B, U + 1, N) over hidden states.

    Row u: weight 1 on centre u and a_j on the ``neighbours`` other patches j with the largest key cosine (not divided
    by their sum). Last row: a_j on every patch that is no centre.
    """
    images, n = attention.shape
    directions = unit(keys)
    cosines = torch.stack([d[c] @ d.T for d, c in zip(directions, centres, strict=True)])
    cosines.scatter_(2, centres.unsqueeze(2), -torch.inf)
    nearest = rank(cosines)[:, :, : min(neighbours, n - 1)]
    mix = attention.new_zeros(images, centres.shape[1] + 1, n)
    absorbed = attention.unsqueeze(1).expand(-1, centres.shape[1], -1).gather(2, nearest)
    mix[:, :-1].scatter_(2, nearest, absorbed).scatter_(2, centres.unsqueeze(2), 1.0)
    mix[:, -1] = attention.scatter(1, centres, 0.0)
    return mix


@dataclass(frozen=True)
class _PruMerge(BatchSelector):
    """What both variants share: K - 1 centres chosen by ``centres`` and the extra token."""

    neighbours: int = 32

    needs: ClassVar[frozenset[str]] = frozenset({KEYS, CLASS_KEY, CLASS_QUERY, MERGED})
    merges_vision: ClassVar[bool] = True
    unpublished: ClassVar[str] = "no form of it is published for images without a class token"
    ranges: ClassVar[Ranges] = {"neighbours": (0, inf)}

    @abstractmethod
    def centres(self, attention: Tensor, count: int) -> Tensor:
        """(B, N) -> (B, count) distinct centres."""

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        n = views[0].tokens.shape[0]
        if k >= n:
            return [Selection(torch.arange(n, device=view.tokens.device)) for view in views]
        keys = stack([view.signals[KEYS].transpose(0, 1).flatten(1) for view in views]).float()
        class_key = stack([view.signals[CLASS_KEY].flatten() for view in views]).float()
        query = stack([view.signals[CLASS_QUERY].flatten() for view in views]).float()
        attention = class_attention(query, class_key, keys)
        centres = self.centres(attention, k - 1)
        mixes = merge_weights(attention, keys, centres, self.neighbours)
        extra = centres.new_full((len(views), 1), NO_SOURCE)
        return [
            Selection(anchors, mix, merge_at="vision")
            for anchors, mix in zip(torch.cat([centres, extra], dim=1), mixes, strict=True)
        ]


@SELECTORS.register("prumerge")
@dataclass(frozen=True)
class PruMerge(_PruMerge):
    """Keeps the patches the class token attends to, each absorbing its nearest by key, and sums up the rest.

    Reference: "LLaVA-PruMerge: Adaptive Token Reduction for Efficient Large Multimodal Models" (2024).
    Needs: keys, class key and class query of the last vision layer; the penultimate hidden states are what is merged.
    Parity: exact-index for the fixed-ratio form. K outputs are K - 1 centres plus the extra token, that is the
    published method at ratio (K - 1) / N; the published adaptive ratio chooses its own K.
    Acts: merges vision hidden states before the projector. The extra token has no anchor (-1).
    Degenerate inputs: zero-norm keys have cosine 0; with fewer than 33 patches a centre absorbs all others; K = 1
    leaves the extra token alone; K = N changes nothing. Ties go to the lower index.

    Parameters
    ----------
    neighbours: patches that each centre absorbs.
    """

    name: ClassVar[str] = "prumerge"
    parity: ClassVar[Parity] = "exact-index"
    merges: ClassVar[bool] = True
    official_ms: ClassVar[float] = 226.0

    def centres(self, attention: Tensor, count: int) -> Tensor:
        return rank(attention)[:, :count]


@SELECTORS.register("prumerge_plus")
@dataclass(frozen=True)
class PruMergePlus(_PruMerge):
    """PruMerge with a spatial ladder: beside the attended patches, evenly spaced ones become centres too.

    Reference: "LLaVA-PruMerge: Adaptive Token Reduction for Efficient Large Multimodal Models" (2024).
    Needs: keys, class key and class query of the last vision layer; the penultimate hidden states are what is merged.
    Parity: official-algorithm. The published ladder step floor(floor(1 / ratio) / 3) aims at three ladder patches per
    attended centre but cannot hit a given K (and fails above ratio 1/3). Here K outputs are c = round((K - 1) / 4)
    attended centres, K - 1 - c ladder centres at every ((N - c) / (K - 1 - c))-th of the other patches in raster
    order, starting with the first, and the extra token. At N = 576, ratio 1/16 this is 36 + 108 + 1, about what is
    published.
    Acts: merges vision hidden states before the projector. The extra token has no anchor (-1).
    Degenerate inputs: as PruMerge.

    Parameters
    ----------
    neighbours: patches that each centre absorbs.
    """

    name: ClassVar[str] = "prumerge_plus"
    parity: ClassVar[Parity] = "official-algorithm"
    merges: ClassVar[bool] = True

    def centres(self, attention: Tensor, count: int) -> Tensor:
        attended = round(count / (1 + LADDER_PER_CENTRE))
        by_attention = rank(attention)
        others = by_attention[:, attended:].sort(dim=1).values
        rungs = torch.arange(count - attended, device=attention.device)
        ladder = others[:, rungs * others.shape[1] // max(count - attended, 1)]
        return torch.cat([by_attention[:, :attended], ladder], dim=1)
