"""DUET-VLM: dominant tokens stay, the next are merged, few at a time; inside, the question's words choose."""

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
)
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import at_least_float32, cosine
from sightline.selectors.scores import half_way, rank, top

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
    clusters. The form for LLaVA is not part of it; its second stage is ``duet_inside``, both are ``duet_both``.
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


# Its second stage, inside the language model.


def unmasked_attention(query: Tensor, key: Tensor, image: Tensor) -> Tensor:
    """(n,) what the text behind the image pays to each visual token, if it could also look at the text behind itself.

    query (H, L, d), key (Hkv, L, d): mean over heads and rows of softmax_j(<q_t, k_j> / sqrt(d)) over all L positions.
    """
    behind = min(int(image[-1]) + 1, query.shape[1] - 1)
    rows = query[:, behind:].float()
    key = key.float().repeat_interleave(len(query) // len(key), dim=0)
    weights: Tensor = (rows @ key.mT / rows.shape[-1] ** 0.5).softmax(dim=-1)
    return weights.mean(dim=(0, 1))[image.to(weights.device)]


@SELECTORS.register("duet_inside")
@dataclass(frozen=True)
class DuetInside(LayerSelector):
    """The words of the question, all together, say which half of the tokens goes on half-way, and which later.

    Reference: Singh et al., "DUET-VLM: Dual stage Unified Efficient Token reduction for VLM Training and Inference"
    (CVPR 2026), the text-to-vision stage in the form for Qwen2.5-VL; the stage before it is ``duet``, both are
    ``duet_both``.

    Score: ``unmasked_attention`` with the queries and keys of the next layer; its softmax has no causal mask, as in the
    public code. Deletion, highest scores, ties to the lower index.
    Schedule: half of the N tokens continue once half of the layers have run, K once three quarters have (16 and 24 of
    32, 14 and 21 of 28); from K = N / 2 on the first cut leaves K. Published are shares of 1/2 and 1/4, or 1/2 and
    nothing. In a shallow model the cuts move up to the last layer but one.
    Costs: reads queries and keys of the next layer at two cuts.
    Parity: official-algorithm. The first cut chooses what the public code chooses. That code then counts tokens as if
    they had been halved twice, so its second cut ranks half of what is left and takes the others for text: here all are
    ranked. The form for LLaVA asks a part-of-speech tagger for the words that count; that is not part of it.
    Degenerate input: equal scores keep the first tokens; without text behind the image its last position looks.
    """

    name: ClassVar[str] = "duet_inside"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.next_query", "lm.next_key"})

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {half_way(layers, 0.5): max(k, n // 2), half_way(layers, 0.75): k}

    def cut(self, state: LayerState, k: int) -> Selection:
        query, key = state.signals["lm.next_query"], state.signals["lm.next_key"]
        return Selection(anchors=top(unmasked_attention(query, key, state.image), k))


@SELECTORS.register("duet_both")
@dataclass(frozen=True)
class DuetBoth(TwoStages, Duet, DuetInside):
    """Merged background before the language model, the question's choice half-way, and no visual token at its end.

    Reference: Singh et al., "DUET-VLM: Dual stage Unified Efficient Token reduction for VLM Training and Inference"
    (CVPR 2026).

    Stages: ``duet``, then ``duet_inside`` on what it leaves, with the arguments of both.
    Budget: K is the mean over the language layers. Published for a mean of 192 in LLaVA-1.5 are 307 tokens
    that reach the model, half of them from layer 16 to 24, and none behind it: 8/5 K. With ``share=0.25`` it is the
    other published setting, a quarter at the end.
    Costs: what both stages read, the first once per image, the second between layers.
    Parity: official-algorithm, as far as each stage has it. Where nothing is left, lineage
    and coverage are empty: ``k_layers`` says what the layers read.
    """

    name: ClassVar[str] = "duet_both"
    parity: ClassVar[Parity] = "official-algorithm"
    ranges: ClassVar[Ranges] = {"share": (0.0, 1.0)}

    share: float = 0.0
