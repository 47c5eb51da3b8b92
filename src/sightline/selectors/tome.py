"""ToMe: bipartite soft matching, repeated until the budget is met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, Ranges, Selection, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import stack, unit
from sightline.selectors.scores import rank

KEYS = "vision.key@-1"


def match(metric: Tensor, r: int, protect_first: bool = False) -> tuple[Tensor, Tensor]:
    """One step, metric (B, n, d) -> slot of every token (B, n), and the representative token of every slot (B, n - r).

    Even positions A and odd positions B; each a in A finds its most similar b by cosine; the r most similar a are
    merged into their b. Slots: the unmerged of A, most similar first, then B. ``protect_first`` keeps token 0 (a class
    token) out of every merge; the unmerged of A then stay in index order. r is capped at half of the tokens that may
    merge.
    """
    images, n, _ = metric.shape
    r = min(r, (n - protect_first) // 2)
    own = torch.arange(n, device=metric.device).expand(images, -1)
    if r <= 0:
        return own, own
    directions = unit(metric)
    similarity = torch.stack([d[::2] @ d[1::2].T for d in directions])
    if protect_first:
        similarity[:, 0] = -torch.inf
    closest, partner = similarity.max(dim=2)
    by_similarity = rank(closest)
    merged, unmerged = by_similarity[:, :r], by_similarity[:, r:]
    if protect_first:
        unmerged = unmerged.sort(dim=1).values
    kept = unmerged.shape[1]
    slot = torch.empty_like(own)
    slot[:, 1::2] = kept + torch.arange(n // 2, device=metric.device)
    slot.scatter_(1, 2 * unmerged, torch.arange(kept, device=metric.device).expand(images, -1))
    slot.scatter_(1, 2 * merged, kept + partner.gather(1, merged))
    return slot, torch.cat([2 * unmerged, own[:, 1::2]], dim=1)


def mean_weights(slot: Tensor, slots: int, size: Tensor) -> tuple[Tensor, Tensor]:
    """slot, size (B, n) -> mix (B, slots, n) of the size-weighted mean per slot, and the merged sizes (B, slots)."""
    mix = size.new_zeros(slot.shape[0], slots, slot.shape[1]).scatter_(1, slot.unsqueeze(1), size.unsqueeze(1))
    total = mix.sum(dim=2)
    return mix / total.unsqueeze(2), total


def merge_to(metric: Tensor, k: int, most: int | None = None) -> tuple[Tensor, Tensor]:
    """metric (B, N, d) -> slot 0..k-1 of every token (B, N) and the anchor of every slot (B, k).

    Steps of at most ``most`` merges (None: as many as half allows) until k slots are left. Between steps a merged
    token's metric is the mean of its members'; the lineage of the whole is the composition of the steps' slot maps.
    """
    metric = metric.float()
    images, n, _ = metric.shape
    slot = anchors = torch.arange(n, device=metric.device).expand(images, -1)
    size = metric.new_ones(images, n)
    while n > k:
        step, representative = match(metric, min(n - k, n if most is None else most))
        slot, anchors = step.gather(1, slot), anchors.gather(1, representative)
        n = anchors.shape[1]
        if n > k:
            mix, size = mean_weights(step, n, size)
            metric = torch.stack([m @ x for m, x in zip(mix, metric, strict=True)])
    return slot, anchors


@SELECTORS.register("tome")
@dataclass(frozen=True)
class ToMe(BatchSelector):
    """Merges the most similar pairs of tokens, even positions into odd ones, until K averages are left.

    Reference: "Token Merging: Your ViT But Faster" (2023).
    Needs: keys of the last vision layer, averaged over heads, as the metric; or nothing with ``metric="tokens"``.
    Parity: official-algorithm. Each step is the published matching; published use spreads the steps over the layers of
    the vision tower, here they follow one another on the projected tokens until K are left.
    Acts: merges projected tokens (mean over all members) before the language model; the lineage of every token is
    exact.
    Degenerate inputs: zero-norm metrics have cosine 0; ties go to the lower index.

    Parameters
    ----------
    metric: ``keys`` as published, or ``tokens``, the projected tokens themselves, for towers without that signal.
    most: largest number of merges per step; None merges up to half of the tokens at once.
    """

    metric: Literal["keys", "tokens"] = "keys"
    most: int | None = None

    name: ClassVar[str] = "tome"
    parity: ClassVar[Parity] = "official-algorithm"
    ranges: ClassVar[Ranges] = {"most": (1, inf)}
    merges: ClassVar[bool] = True
    official_ms: ClassVar[float] = 3.6

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({KEYS}) if self.metric == "keys" else frozenset()

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        if self.metric == "keys":
            metric = stack([view.signals[KEYS].float().mean(dim=0) for view in views])
        else:
            metric = stack([view.tokens for view in views])
        slot, anchors = merge_to(metric, k, self.most)
        mixes, _ = mean_weights(slot, k, torch.ones_like(slot, dtype=torch.float32))
        return [Selection(a, mix) for a, mix in zip(anchors, mixes, strict=True)]
