"""FlowCut: follow how much flows through each patch over the vision tower's layers, and prune along the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import Parity, Ranges, Selection, Selector, TokenView, build_form
from sightline.selectors import SELECTORS
from sightline.selectors.scores import rank, top

TINY = torch.finfo(torch.float64).tiny
KINDS = ("vision.cls_attention", "vision.value", "vision.cls_value")
TOWER_KINDS = ("vision.query", "vision.key", "vision.value")


def attention_to(alive: Tensor, attention: Tensor) -> Tensor:
    """The class token's attention (H, N) as it would be with some patches alone: (N,), sums to 1, 0 where not alive.

    What the class token pays itself, which is cut off the signal, is what its row lacks to 1.
    """
    itself = (1.0 - attention.sum(dim=1, keepdim=True)).clamp_min(0.0)
    left = attention * alive
    mean = (left / (left.sum(dim=1, keepdim=True) + itself).clamp_min(TINY)).mean(dim=0)
    return mean / mean.sum().clamp_min(TINY)


def likeness_to_class(alive: Tensor, values: Tensor, cls_value: Tensor) -> Tensor:
    """(N,), sums to 1: head mean of softmax_j(<v_cls, v_j>) over the class token and the living patches.

    values (H, N, d), cls_value (H, d).
    """
    products = torch.where(alive, (values @ cls_value.unsqueeze(2)).squeeze(2), -torch.inf)
    itself = cls_value.square().sum(dim=1, keepdim=True)
    mean = torch.cat([itself, products], dim=1).softmax(dim=1)[:, 1:].mean(dim=0)
    return mean / mean.sum().clamp_min(TINY)


def surplus(attention: Tensor, count: Tensor, k: int, remaining: int) -> Tensor:
    """How many of ``count`` () patches a layer can spare, (): the more, the more its attention is concentrated.

    (count - K) / sqrt(remaining layers) * (1 - (entropy / log count)^2), rounded; all that are too many at the last.
    """
    if remaining == 0:
        return count - k
    entropy = -torch.xlogy(attention, attention).sum() / count.log().clamp_min(TINY)
    spare: Tensor = (count - k) / remaining**0.5 * (1.0 - entropy.square())
    return spare.round().nan_to_num().clamp_min(0.0)


def by_class_token(alive: Tensor, signals: Mapping[str, Tensor], layer: int) -> tuple[Tensor, Tensor]:
    """(N,) attention of the living patches, and score."""
    attention, values, cls_value = (signals[f"{kind}@{layer}"].double() for kind in KINDS)
    looked_at = attention_to(alive, attention)
    size = values.mean(dim=0).abs().sum(dim=1)
    return looked_at, (looked_at + likeness_to_class(alive, values, cls_value)) * size


def by_mean_query(alive: Tensor, signals: Mapping[str, Tensor], layer: int) -> tuple[Tensor, Tensor]:
    """(N,) a = head mean of softmax_j(<mean of living queries, k_j> / sqrt(d)), and score a |v|_1; no likeness."""
    query, key, values = (signals[f"{kind}@{layer}"].double() for kind in TOWER_KINDS)
    mean = (query * alive[:, None]).sum(dim=1, keepdim=True) / alive.sum()
    looked_at = torch.where(alive, (mean @ key.mT).squeeze(1) / query.shape[-1] ** 0.5, -torch.inf).softmax(1).mean(0)
    return looked_at, looked_at * values.mean(dim=0).abs().sum(dim=1)


Scoring = Callable[[Tensor, Mapping[str, Tensor], int], tuple[Tensor, Tensor]]


def followed(signals: Mapping[str, Tensor], layers: int, k: int, scoring: Scoring = by_class_token) -> Tensor:
    """(N,) bool, the K patches left behind ``layers`` layers; the equations are those of FlowCut's description."""
    n = signals["vision.value@0"].shape[1]
    alive = torch.ones(n, dtype=torch.bool, device=signals["vision.value@0"].device)
    count = torch.full((), float(n), dtype=torch.float64, device=alive.device)
    flow = None
    for layer in range(layers):
        looked_at, score = scoring(alive, signals, layer)
        flow = score if flow is None else 0.5 * flow + 0.5 * score
        remaining = layers - 1 - layer
        if remaining % 2 == 0:
            count = (count - surplus(looked_at, count, k, remaining)).clamp_min(k)
            ranked = rank(torch.where(alive, flow.nan_to_num(), -torch.inf))
            place = torch.empty_like(ranked).scatter_(0, ranked, torch.arange(n, device=ranked.device))
            alive = place < count
    return alive


@SELECTORS.register("flowcut")
@dataclass(frozen=True)
class FlowCut(Selector):
    """Keeps the patches through which most flows: attention, likeness to the class token and size, summed over layers.

    Reference: Tong et al., "FlowCut: Rethinking Redundancy via Information Flow for Efficient Vision-Language Models"
    (NeurIPS 2025), its part in the vision tower.
    Needs: class-token attention, values, and the class token's value of vision blocks 0..``last_layer``.
    Parity: official-algorithm. Equal to the public code for LLaVA, given what the tower computes with every patch in
    place; its cut inside the language model for tiled images is not part of it.

    In every block  s_i = (a_i + c_i) |v_i|_1,  with a the class token's attention and c = softmax(<v_cls, v_i>), both
    head means that sum to 1, and v the head mean of values; the flow is F <- (F + s) / 2. Every other block drops the
    patches of least flow, as many as ``surplus`` says, the last one down to K.
    Acts: deletes before the language model. The paper drops patches inside the tower, whose later blocks then no longer
    see them; here the tower runs once on all patches, and attention is divided anew among those that would be left.
    So it saves the tower nothing, and later blocks score what they saw with every patch in place. The class token is
    not one of the K, where the public code keeps it.
    Degenerate inputs: attention of all zeros counts as none; equal flows go to the lower index; NaN counts as 0.

    Parameters
    ----------
    last_layer: the vision block after which K patches are left; 21 of 0..23 as published for LLaVA.
    """

    last_layer: int = 21

    name: ClassVar[str] = "flowcut"
    parity: ClassVar[Parity] = "official-algorithm"
    ranges: ClassVar[Ranges] = {"last_layer": (0, 10_000)}

    kinds: ClassVar[tuple[str, ...]] = KINDS

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(f"{kind}@{layer}" for kind in self.kinds for layer in range(self.last_layer + 1))

    def other_form(self, blocks: int) -> FlowCut:
        return build_form(MeanQueryFlowCut, self, last_layer=blocks - 1)

    def scoring(self, alive: Tensor, signals: Mapping[str, Tensor], layer: int) -> tuple[Tensor, Tensor]:
        return by_class_token(alive, signals, layer)

    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(top(followed(view.signals, self.last_layer + 1, k, self.scoring).float(), k))


class MeanQueryFlowCut(FlowCut):
    """The mean of all queries stands for the class token, through all blocks of the tower (``by_mean_query``).

    The public code drops patches, and neighbours that are left become tokens together; here tokens are dropped, with
    the mean queries, keys and values of their patches.
    """

    form: ClassVar[str] = "the mean query's attention through all blocks, as the public code for Qwen2-VL"
    kinds: ClassVar[tuple[str, ...]] = TOWER_KINDS

    def scoring(self, alive: Tensor, signals: Mapping[str, Tensor], layer: int) -> tuple[Tensor, Tensor]:
        return by_mean_query(alive, signals, layer)
