"""DUET-VLM, stage 1: dominant tokens stay; of the rest only the most attended are merged, few at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import Parity, Ranges, Selection, Selector, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import at_least_float32, cosine
from sightline.selectors.scores import rank

RECEIVED, KEYS = "vision.received@-1", "vision.key@-1"


def local_merge(received: Tensor, metric: Tensor, dominant: int, contextual: int, width: int) -> tuple[Tensor, Tensor]:
    """anchors (K,), dominant ones first, and mix (K, N) for K = dominant + contextual.

    received (N,), metric (N, d). Dominant: the most attended, each alone. Of the next ``width`` * ``contextual`` by
    attention, every ``width``-th is a centre; each other one joins the centre of most similar metric. Output = centre +
    mean of those that joined it. Whatever is attended less is dropped.
    """
    ranked = rank(received)
    pool = ranked[dominant : dominant + width * contextual]
    step = max(1, len(pool) // max(1, contextual))
    centres = pool[: step * contextual : step]
    anchors = torch.cat([ranked[:dominant], centres])
    mix = torch.zeros(len(anchors), len(received), device=received.device)
    if contextual:
        joining = torch.ones_like(pool, dtype=torch.bool)
        joining[: step * contextual : step] = False
        slot = cosine(metric[pool].double(), metric[centres].double()).argmax(dim=1)
        joined = torch.zeros(contextual, device=received.device).scatter_add_(0, slot, joining.float())
        mix[dominant + slot, pool] = torch.where(joining, joined[slot].reciprocal(), 0.0)
    mix[torch.arange(len(anchors), device=mix.device), anchors] = 1.0
    return anchors, mix


@SELECTORS.register("duet")
@dataclass(frozen=True)
class Duet(Selector):
    """Keeps the tokens that receive most attention, and small clusters of the next: the far background is not mixed in.

    Reference: Singh et al., "DUET-VLM: Dual stage Unified Efficient Token reduction for VLM Training and Inference"
    (CVPR 2026), the vision-to-vision stage in the form for towers without a class token.
    Needs: attention received and keys of the last vision block.
    Parity: official-algorithm. Equal to the public code for Qwen2.5-VL, tokens and merge, given how K is split between
    dominant tokens and clusters; that is an argument here, as published settings range from 7 of 307 to 30 of 102
    clusters. The form for LLaVA and the second stage, text-guided cuts inside the language model, are not part of it.
    Acts: merges projected tokens, and every DeepStack level by the same plan (``local_merge``). Unlike VisionZip's, a
    cluster takes part of ``width`` - 1 tokens on average, and most tokens are in no lineage.
    Degenerate inputs: equal attention goes by index; a zero key is equally similar to every centre and joins the first;
    K = N changes nothing.

    Parameters
    ----------
    contextual: share of K that are clusters; none while it rounds to 0.
    width: tokens per cluster that are merged at all, its centre included.
    """

    contextual: float = 0.16
    width: int = 4

    name: ClassVar[str] = "duet"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({RECEIVED, KEYS})
    merges: ClassVar[bool] = True
    ranges: ClassVar[Ranges] = {"contextual": (0.0, 1.0), "width": (1, 100_000)}

    def select(self, view: TokenView, k: int) -> Selection:
        received = at_least_float32(view.signals[RECEIVED])
        metric = at_least_float32(view.signals[KEYS]).mean(dim=0)
        contextual = min(round(k * self.contextual), k)
        return Selection(*local_merge(received, metric, k - contextual, contextual, self.width))
