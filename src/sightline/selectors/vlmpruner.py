"""VLM-Pruner: grow outwards from a few pivots, near tokens first, and fold what is left into what was kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sightline.core.selection import LayerSelector, LayerState, Parity, Ranges, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.scores import NORM_FLOOR, rank


def spread_pivots(keys: Tensor, count: int) -> Tensor:
    """The largest key (L1 norm), then repeatedly the one farthest (L2) from those chosen: (n, C) -> (count,)."""
    keys = keys.float()
    pivot = rank(keys.abs().sum(dim=-1))[:1]
    chosen = [pivot]
    clearance = keys.new_full((keys.shape[0],), torch.inf)
    for _ in range(count - 1):
        clearance = torch.minimum(clearance, torch.linalg.vector_norm(keys - keys[pivot], dim=-1))
        clearance[pivot] = -1.0  # Duplicates lie at distance 0, so even then no pivot comes back.
        pivot = clearance.argmax().unsqueeze(0)
        chosen.append(pivot)
    return torch.cat(chosen)


def channel_cosine(visual: Tensor, channels: int) -> Tensor:
    """Cosine similarity on the ``channels`` channels that vary most over the tokens: (n, D) -> (n, n) float32."""
    visual = visual.float()
    if visual.shape[-1] > channels:
        # Dividing by n instead of n - 1 leaves the order of the variances alone and is defined for one token.
        visual = visual.index_select(-1, rank(visual.var(dim=0, correction=0))[:channels])
    unit = torch.nn.functional.normalize(visual, dim=-1, eps=NORM_FLOOR)
    return unit @ unit.mT


def grid_places(layout: tuple[tuple[int, int], ...]) -> Tensor:
    """(N, 2) float32 row and column of each token; further blocks (tiles, thumbnail) stand below one another."""
    blocks = []
    top = 0
    for rows, columns in layout:
        blocks.append(torch.cartesian_prod(torch.arange(top, top + rows), torch.arange(columns)).view(-1, 2))
        top += rows
    return torch.cat(blocks).float()


def grow(
    similarity: Tensor,
    places: Tensor,
    pivots: Tensor,
    k: int,
    *,
    threshold: float,
    batch: int,
    diagonal: float,
    fill: bool = True,
) -> Tensor:
    """Accepts tokens in rounds until k are kept; returns them ascending.

    similarity (n, n), places (n, 2), pivots (p,) with p <= k. A candidate's redundancy is
    b_i = max_{s kept} sim_is * (1 + d_i / (2 * diagonal)), d_i its distance to the nearest kept token. A round
    walks the candidates by ascending b in batches; in each batch those with (current) b below the threshold are
    accepted, the lowest only if there is no room for all. A first batch without any ends the round. The threshold
    then rises by 0.1. When a round accepts nothing the public code stops short of k (``fill`` False); with ``fill``
    the threshold is lifted.
    """
    # A few hundred tiny steps whose outcome decides the next one: on the host, and away from tensor-call overhead.
    likeness = similarity.cpu().numpy()
    place = places.cpu().numpy()
    kept = np.zeros(len(likeness), dtype=bool)
    nearest_likeness = np.full(len(likeness), -np.inf, dtype=likeness.dtype)
    nearest_square = np.full(len(likeness), np.inf, dtype=place.dtype)

    def accept(tokens: np.ndarray) -> None:
        kept[tokens] = True
        np.maximum(nearest_likeness, likeness[tokens].max(axis=0), out=nearest_likeness)
        steps = place[tokens, None, :] - place[None, :, :]
        np.minimum(nearest_square, np.square(steps).sum(axis=-1).min(axis=0), out=nearest_square)

    def redundancy(tokens: np.ndarray) -> np.ndarray:
        boost = 1.0 + 0.5 * np.sqrt(nearest_square[tokens]) / diagonal
        result: np.ndarray = nearest_likeness[tokens] * boost
        return result

    accept(pivots.cpu().numpy())
    missing = k - len(pivots)
    while missing:
        candidates = np.flatnonzero(~kept)
        candidates = candidates[np.argsort(redundancy(candidates), kind="stable")]
        before = missing
        for start in range(0, len(candidates), batch):
            tokens = candidates[start : start + batch]
            values = redundancy(tokens)
            passing = values < threshold
            if passing.any():
                tokens = tokens[passing][np.argsort(values[passing], kind="stable")][:missing]
                accept(tokens)
                missing -= len(tokens)
            elif start == 0:
                break
            if not missing:
                break
        if missing == before and not fill:
            break
        threshold = threshold + 0.1 if missing < before else math.inf
    return torch.from_numpy(np.flatnonzero(kept)).to(similarity.device)


def fold(similarity: Tensor, kept: Tensor, own: float) -> Tensor:
    """Each discarded token flows into the kept token most similar to it: (n, n), (k,) -> mix (k, n) float32.

    Row u = own * [u] + (1 - own) * sum_i sim_ui [i] / sum_i sim_ui over its discarded tokens i; a kept token that
    nothing flows into, or whose weights do not add up to a positive number, stays itself.
    """
    towards = similarity.index_select(0, kept)
    weight, receiver = towards.max(dim=0)
    weight = weight.index_fill(0, kept, 0.0)
    mix = torch.zeros_like(towards).scatter_(0, receiver.unsqueeze(0), weight.unsqueeze(0))
    total = mix.sum(dim=-1, keepdim=True)
    flows = total > NORM_FLOOR
    mix = torch.where(flows, (1.0 - own) * mix / torch.where(flows, total, 1.0), 0.0)
    mix[torch.arange(len(kept), device=kept.device), kept] = torch.where(flows.squeeze(1), own, 1.0)
    return mix


@SELECTORS.register("vlmpruner")
@dataclass(frozen=True)
class VLMPruner(LayerSelector):
    """Centrifugal selection: a token is redundant if it resembles a kept one, the more so the farther away it lies.

    Reference: "VLM-Pruner: Buffering for Spatial Sparsity in an Efficient VLM Centrifugal Token Pruning Paradigm"
    (2025).

    Pivots by key (largest L1 norm, then farthest points) seed the kept set, which grows in rounds (see ``grow``) on
    cosine similarity over the 256 channels of the hidden state that vary most. What is discarded is **merged**: each
    kept token becomes 0.3 of itself and 0.7 of the similarity-weighted mean of the discarded tokens most similar to
    it. Kept tokens are the anchors. Needs ``lm.key`` (rotated keys of the layer that just ran).
    Schedule: ``full_layers`` layers run on the full sequence, then K tokens continue; in a shallow model the cut
    moves up to the last layer but one.
    Geometry: rows and columns of the layout, distances relative to the diagonal of its first block. The public code
    assumes 24 columns and 24 sqrt(2), which a 24 x 24 layout reproduces.
    Count: the public code may stop short of K when a round accepts nothing. Here the threshold is then lifted and the
    least redundant tokens follow, batch by batch, until there are exactly K.
    Parity: exact-index. Degenerate input: K below ``pivots`` keeps the first K pivots; zero vectors have similarity 0
    and nothing flows into or out of them; ties take the lower index.
    """

    name: ClassVar[str] = "vlmpruner"
    parity: ClassVar[Parity] = "exact-index"
    ranges: ClassVar[Ranges] = {
        "pivots": (1, inf), "batch": (1, inf), "channels": (1, inf), "full_layers": (1, inf), "own": (0.0, 1.0),
    }  # fmt: skip
    needs: ClassVar[frozenset[str]] = frozenset({"lm.key"})
    merges: ClassVar[bool] = True
    official_ms: ClassVar[float] = 581.0

    pivots: int = 4
    threshold: float = 0.8
    batch: int = 16
    channels: int = 256
    own: float = 0.3
    """Share of itself that a kept token retains when discarded tokens flow into it."""
    full_layers: int = 2
    """Number of layers that see every token."""

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {max(0, min(self.full_layers - 1, layers - 2)): k}

    def cut(self, state: LayerState, k: int, *, fill: bool = True) -> Selection:
        image = state.image.to(state.hidden.device)
        keys = state.signals["lm.key"].index_select(1, image).transpose(0, 1).flatten(1)
        similarity = channel_cosine(state.hidden.index_select(0, image), self.channels)
        kept = grow(
            similarity,
            grid_places(state.layout)[state.source.cpu()],
            spread_pivots(keys, min(self.pivots, k)),
            k,
            threshold=self.threshold,
            batch=self.batch,
            diagonal=math.hypot(*state.layout[0]),
            fill=fill,
        )
        return Selection(anchors=kept, mix=fold(similarity, kept, self.own))
