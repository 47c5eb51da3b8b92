"""VScan, stage 1: what a shallow layer looks at in every window, what a deep one looks at globally, others merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import (
    LayerSelector,
    LayerState,
    Parity,
    Ranges,
    Selection,
    Selector,
    TokenView,
    TwoStages,
    build_form,
)
from sightline.selectors import SELECTORS
from sightline.selectors.fastervlm import CLASS_ATTENTION, RECEIVED, token_attention
from sightline.selectors.fastv import attention_score
from sightline.selectors.greedy import cosine
from sightline.selectors.scores import half_way, order, rank, top


def windows(layout: tuple[tuple[int, int], ...], side: int, joined: bool = False) -> Tensor:
    """(N,) int64: the side x side window of its own block that each token lies in, counted on over blocks.

    ``joined``: what a block has beyond its last whole window belongs to that.
    """
    numbers: list[Tensor] = []
    first = 0
    for rows, columns in layout:
        down, across = (max(1, count // side if joined else -(-count // side)) for count in (rows, columns))
        row = (torch.arange(rows) // side).clamp_max(down - 1)
        column = (torch.arange(columns) // side).clamp_max(across - 1)
        numbers.append((first + row[:, None] * across + column).flatten())
        first += down * across
    return torch.cat(numbers)


def places_within(score: Tensor, group: Tensor) -> Tensor:
    """(N,) int64: 0 for the highest score of its group, 1 for the next, ...; ties to the lower index.

    ``group`` is on the CPU, where counting its members waits for nothing.
    """
    size = torch.bincount(group)
    first = (size.cumsum(0) - size)[group].to(score.device)
    sorted_by = order(group.to(score.device), -score)
    rising = torch.arange(len(group), device=score.device)
    return torch.empty_like(sorted_by).scatter_(0, sorted_by, rising) - first


def scans(deep: Tensor, shallow: Tensor, window: Tensor, overall: int, local: int) -> Tensor:
    """(K,) ascending, K = local + overall: window by window the highest of ``shallow``, then of the others, ``deep``.

    deep, shallow (N,), window (N,) on the CPU. Windows take turns: the best of every window, then the second best, ...;
    within a turn the higher ``shallow`` comes first.
    """
    scanned = order(places_within(shallow, window), -shallow)[:local]
    rest = rank(deep.index_fill(0, scanned, -torch.inf))[:overall]
    return torch.cat([scanned, rest]).sort().values


def capped_scans(deep: Tensor, shallow: Tensor, window: Tensor, overall: int, local: int) -> Tensor:
    """(K,) ascending as ``scans``, the local ones by falling ``shallow``, of each window at most ceil(local / windows).

    Where windows are too small for that, the highest of the others follow.
    """
    cap = -(-local // (int(window.max()) + 1))
    scanned = order((places_within(shallow, window) >= cap).double(), -shallow)[:local]
    return torch.cat([scanned, rank(deep.index_fill(0, scanned, -torch.inf))[:overall]]).sort().values


@SELECTORS.register("vscan")
@dataclass(frozen=True)
class VScan(Selector):
    """Keeps the patches a deep layer attends to and those a shallow one attends to in each window; merges the others.

    Reference: Zhang et al., "VScan: Rethinking Visual Token Reduction for Efficient Large Vision-Language Models" (TMLR
    2026), the scans in the vision tower.
    Needs: class-token attention of a shallow and of the penultimate vision layer, averaged over heads.
    Parity: official-algorithm. Equal to the public code for LLaVA-1.5, tokens and merge, wherever half of K, rounded
    down, is a multiple of the number of windows; elsewhere that code drops the remainder and keeps fewer than K, here
    the windows take one more turn. On tiled images it gives every tile its own K (``/tile``). Its second stage is
    ``vscan_inside``, both are ``vscan_both``.
    Acts: half of K (the smaller) by the local scan, the rest by the global one (``scans``); every other token is
    **merged** into the kept one of highest cosine, as a plain mean, behind the projector.
    Degenerate inputs: a zero vector has cosine 0 and joins the first; equal values go to the lower index; NaN attention
    counts as 0.

    Parameters
    ----------
    local_layer: the shallow vision block, of those counted from 0.
    side: rows and columns of a window in patches.
    """

    local_layer: int = 5
    side: int = 6

    name: ClassVar[str] = "vscan"
    parity: ClassVar[Parity] = "official-algorithm"
    merges: ClassVar[bool] = True
    ranges: ClassVar[Ranges] = {"side": (1, 100_000)}

    deep: ClassVar[str] = CLASS_ATTENTION

    @property
    def shallow(self) -> str:
        return f"{self.deep.partition('@')[0]}@{self.local_layer}"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.shallow, self.deep})

    def other_form(self, blocks: int) -> VScan:
        return build_form(ReceivedVScan, self)

    def scan(self, deep: Tensor, shallow: Tensor, view: TokenView, k: int) -> Tensor:
        return scans(deep, shallow, windows(view.layout, self.side), k - k // 2, k // 2)

    def select(self, view: TokenView, k: int) -> Selection:
        deep, shallow = (
            token_attention([view], name, torch.float64)[0].nan_to_num() for name in (self.deep, self.shallow)
        )
        kept = self.scan(deep, shallow, view, k)
        tokens = view.tokens.double()
        slot = cosine(tokens, tokens[kept]).argmax(dim=1)
        slot[kept] = torch.arange(k, device=slot.device)
        mix = torch.zeros(k, len(deep), device=deep.device).scatter_(0, slot.unsqueeze(0), 1.0)
        return Selection(kept, mix / mix.sum(dim=1, keepdim=True))


@dataclass(frozen=True)
class ReceivedVScan(VScan):
    """By the attention that tokens receive, in block 7 (the first of Qwen2.5-VL's 32 that attends to all) and the last.

    Windows of 4 x 4, and ``capped_scans`` within them; others are merged as ever.
    """

    local_layer: int = 7
    side: int = 4

    form: ClassVar[str] = (
        "the attention a token receives in block 7 and in the last, windows of 4 x 4, as the public code for Qwen2.5-VL"
    )
    deep: ClassVar[str] = RECEIVED

    def scan(self, deep: Tensor, shallow: Tensor, view: TokenView, k: int) -> Tensor:
        return capped_scans(deep, shallow, windows(view.layout, self.side, joined=True), k - k // 2, k // 2)


# Its second stage, inside the language model.


@SELECTORS.register("vscan_inside")
@dataclass(frozen=True)
class VScanInside(LayerSelector):
    """Early layers look at the image by position; half-way, attention says what the answer needs.

    Reference: Zhang et al., "VScan: Rethinking Visual Token Reduction for Efficient Large Vision-Language Models" (TMLR
    2026), the cut in the language model; the scans in the vision tower are ``vscan``.

    Score: head mean of the last prompt token's attention, computed from the hidden states that leave a layer with the
    query and key projections of the next (``lm.next_attention_last``). Deletion, one cut, highest scores, ties to the
    lower index.
    Schedule: K tokens continue once half of the layers have run, 16 of 32 as published for LLaVA-1.5 and 14 of 28 for
    Qwen2.5-VL; in a shallow model the cut moves up to the last layer but one.
    Parity: exact-index for the choice. The public code renumbers positions after the cut; the audit preserves them.
    Degenerate input: equal scores keep the first tokens.
    """

    name: ClassVar[str] = "vscan_inside"
    parity: ClassVar[Parity] = "exact-index"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.next_attention_last"})
    ranges: ClassVar[Ranges] = {"depth": (0.0, 1.0)}

    depth: float = 0.5
    """Part of the layers that see every token."""

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {half_way(layers, self.depth): k}

    def cut(self, state: LayerState, k: int) -> Selection:
        return Selection(anchors=top(attention_score(state.signals["lm.next_attention_last"], state.image), k))


@SELECTORS.register("vscan_both")
@dataclass(frozen=True)
class VScanBoth(TwoStages, VScan, VScanInside):
    """Scans in the vision tower leave some tokens; half-way through the language model attention leaves a third.

    Reference: Zhang et al., "VScan: Rethinking Visual Token Reduction for Efficient Large Vision-Language Models" (TMLR
    2026).

    Stages: ``vscan``, then ``vscan_inside`` on what it leaves, with the arguments of both.
    Budget: K is the mean over the language layers. Published for a mean of 64 in LLaVA-1.5 are 96 tokens that
    reach the model and 32 behind layer 16: 3/2 K, a third of it left. For a half of Qwen2.5-VL's tokens it is 0.6 and
    two thirds of that (``share=0.67``).
    Costs: what both stages read, the first once per image, the second between layers.
    Parity: official-algorithm, as far as each stage has it. Positions are preserved
    at the cut, officially renumbered.
    """

    name: ClassVar[str] = "vscan_both"
    parity: ClassVar[Parity] = "official-algorithm"
    ranges: ClassVar[Ranges] = {"share": (0.0, 1.0)}

    share: float = 1 / 3

    def other_form(self, blocks: int) -> VScan:
        return build_form(ReceivedVScanBoth, self)


@dataclass(frozen=True)
class ReceivedVScanBoth(TwoStages, ReceivedVScan, VScanInside):
    """Both stages, the first as ``ReceivedVScan``; two thirds are left, as published for a half of the tokens."""

    name: ClassVar[str] = "vscan_both"
    parity: ClassVar[Parity] = "official-algorithm"
    ranges: ClassVar[Ranges] = {"share": (0.0, 1.0)}

    share: float = 2 / 3
