"""DART: keep a few pivots and, for each, the visual tokens that duplicate it least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import LayerSelector, LayerState, Parity, Ranges, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.scores import rank


def pivots(keys: Tensor, positions: Tensor, count: int) -> Tensor:
    """The ``count`` positions with the largest key, |k|_1 over all heads together.

    keys (Hkv, L, d), positions (n,) int64 -> (min(count, n),) int64, from the largest norm down.
    """
    norms = keys.index_select(1, positions).float().abs().sum(dim=(0, 2))
    return positions[rank(norms)[:count]]


def least_similar(
    normed: Tensor, image: Tensor, visited: Sequence[int], taken: Tensor, quotas: Sequence[int]
) -> Tensor:
    """Lets each pivot in turn take the visual tokens that are least like it and still free.

    normed (L, D), image (n,), ``visited`` absolute pivot positions, taken (n,) bool and quotas one per pivot
    -> (n,) bool: ``taken`` and everything the pivots took, by ascending cos(pivot, token), ties to the lower index.
    """
    visual = normed.index_select(0, image).float()
    rows = normed[torch.tensor(visited, dtype=torch.int64, device=normed.device)].float()
    # cos(p, z) is ranked over z for one pivot at a time, so the pivot's own length may stay in the product.
    lengths = torch.linalg.vector_norm(visual, dim=-1).clamp_min(torch.finfo(torch.float32).tiny)
    similarity = (rows @ visual.mT) / lengths
    taken = taken.clone()
    for pivot, quota in enumerate(quotas):
        free = torch.where(taken, torch.inf, similarity[pivot])
        taken[torch.argsort(free, stable=True)[:quota]] = True
    return taken


@SELECTORS.register("dart")
@dataclass(frozen=True)
class Dart(LayerSelector):
    """What duplicates a kept token is redundant: importance matters less than duplication.

    Reference: "Stop Looking for Important Tokens in Multimodal Language Models: Duplication Matters More" (EMNLP
    2025).

    Pivots are the visual tokens and the text tokens behind the image with the largest keys (L1 norm). Visited one
    after the other, each adds the free visual tokens of lowest cosine similarity to it. Deletion, one cut. Kept:
    visual pivots and additions. Pivots are visited in the order in which CPython iterates over a set of their
    positions in the sequence, because the public code does; the order decides which pivot gets a token that several
    want. Needs ``lm.key`` (rotated keys of the layer that just ran) and ``lm.normed`` (its output through the model's
    final norm).
    Schedule: ``full_layers`` layers run on the full sequence, then K tokens continue; in a shallow model the cut
    moves up to the last layer but one.
    Count: the public rule keeps 4 + 8t tokens. For such K the result is the public one; any other K gives the first
    (K - 4) mod 8 visited pivots one token more. K below ``image_pivots`` keeps the K largest visual pivots.
    Parity: exact-index. Degenerate input: fewer text tokens than ``text_pivots`` leave fewer pivots; a zero vector
    has similarity 0; equal similarities take the lower index.
    """

    name: ClassVar[str] = "dart"
    parity: ClassVar[Parity] = "exact-index"
    ranges: ClassVar[Ranges] = {"image_pivots": (1, inf), "text_pivots": (0, inf), "full_layers": (1, inf)}
    needs: ClassVar[frozenset[str]] = frozenset({"lm.key", "lm.normed"})
    official_ms: ClassVar[float] = 137.0

    image_pivots: int = 4
    text_pivots: int = 4
    full_layers: int = 2
    """Number of layers that see every token."""

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {max(0, min(self.full_layers - 1, layers - 2)): k}

    def cut(self, state: LayerState, k: int) -> Selection:
        keys, normed = state.signals["lm.key"], state.signals["lm.normed"]
        image = state.image.to(keys.device)
        behind = torch.arange(int(state.image[-1]) + 1, keys.shape[1], device=keys.device)
        visual = pivots(keys, image, min(self.image_pivots, k))
        text = pivots(keys, behind, self.text_pivots)
        taken = torch.isin(image, visual)
        visited = list(set(torch.cat((visual, text)).tolist()))
        each, more = divmod(k - len(visual), len(visited))
        quotas = [each + (turn < more) for turn in range(len(visited))]
        return Selection(anchors=torch.nonzero(least_similar(normed, image, visited, taken, quotas)).squeeze(1))
