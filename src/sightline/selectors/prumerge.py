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

from sightline.core.selection import BatchSelector, Parity, Ranges, Selection, TokenView, build_form
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import at_least_float32, stack, unit
from sightline.selectors.scores import rank

KEYS, CLASS_KEY, CLASS_QUERY = "vision.key@-1", "vision.cls_key@-1", "vision.cls_query@-1"
MERGED = "vision.hidden@-2"
"""What the mix acts on; the selector itself does not read it."""
RECEIVED, DEEP_KEYS = "vision.received@-2", "vision.key@-2"
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
    unpublished: ClassVar[str] = "no form of it is published for images without a class token"

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

    def other_form(self, blocks: int) -> PruMergePlus:
        return build_form(ReceivedPruMergePlus, self)

    def centres(self, attention: Tensor, count: int) -> Tensor:
        attended = round(count / (1 + LADDER_PER_CENTRE))
        by_attention = rank(attention)
        others = by_attention[:, attended:].sort(dim=1).values
        rungs = torch.arange(count - attended, device=attention.device)
        ladder = others[:, rungs * others.shape[1] // max(count - attended, 1)]
        return torch.cat([by_attention[:, :attended], ladder], dim=1)


def outlying(attention: Tensor) -> int:
    """How many of (N,) lie above Q3 + 1.5 (Q3 - Q1), at least one, rounded as the public code rounds it."""
    low, high = torch.quantile(attention, attention.new_tensor([0.25, 0.75]))
    n, count = len(attention), int((attention > high + 1.5 * (high - low)).sum())
    return max(1, int(n * (count / n)))


class ReceivedPruMergePlus(PruMergePlus):
    """Centres receive outlying attention in the penultimate block, others up to K are evenly spaced; no extra token.

    The spaced ones are the first of 0, s, 2s, ..., s = floor(N / K), that are no centres yet: where s does not divide
    well the bottom of the image has none. The public code puts the outputs, which it has in the order of their centres,
    at the centres' places in ascending order; here each stands at its own.
    """

    form: ClassVar[str] = (
        "by the attention a token receives in the penultimate block, K centres of projected tokens and no extra one, "
        "as EffiVLM-Bench (ACL 2025) has PruMerge+ for Qwen2-VL; its authors publish none"
    )
    needs: ClassVar[frozenset[str]] = frozenset({RECEIVED, DEEP_KEYS})
    merges_vision: ClassVar[bool] = False

    def centres(self, attention: Tensor, count: int) -> Tensor:
        (received,) = attention
        n, leading = len(received), rank(received)[: min(count, outlying(received))]
        steps = torch.arange(0, n, max(1, n // count), device=received.device)
        return torch.cat([leading, steps[~torch.isin(steps, leading)][: count - len(leading)]])[None]

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        return [self._selected(view, min(k, len(view.tokens))) for view in views]

    def _selected(self, view: TokenView, k: int) -> Selection:
        if k == len(view.tokens):
            return Selection(torch.arange(k, device=view.tokens.device))
        received = at_least_float32(view.signals[RECEIVED])[None]
        keys = at_least_float32(view.signals[DEEP_KEYS]).transpose(0, 1).flatten(1)[None]
        centres = self.centres(received, k)
        return Selection(centres[0], merge_weights(received, keys, centres, self.neighbours)[0, :-1])
