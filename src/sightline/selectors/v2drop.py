"""V2Drop: drop the visual tokens that a language layer hardly changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import LayerSelector, LayerState, Parity, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.scores import top

PUBLISHED_STAGES = {32: (3, 17, 22), 28: (3, 16, 22)}
"""Layers that have run when tokens are dropped, by depth: LLaVA-1.5-7B and Qwen2-VL."""


def variation(given: Tensor, hidden: Tensor, image: Tensor) -> Tensor:
    """How far a layer moves each visual token: v_i = |h_i - x_i|_2 with its input x and its output h.

    given, hidden (L, D), image (n,) -> (n,) float32.
    """
    image = image.to(hidden.device)
    moved = hidden.index_select(0, image).float() - given.index_select(0, image).float()
    lengths: Tensor = torch.linalg.vector_norm(moved, dim=-1)
    return lengths


@SELECTORS.register("v2drop")
@dataclass(frozen=True)
class V2Drop(LayerSelector):
    """A token that a layer leaves as it was will not change the answer: the laziest are dropped, stage by stage.

    Reference: Chen et al., "Variation-aware Vision Token Dropping for Faster Large Vision-Language Models" (CVPR 2026).

    Score: Euclidean length of what the layer that just ran added to a token, v_i = |h_i - x_i|. No attention and no
    text is looked at. Deletion, highest scores, ties to the lower index. Needs ``lm.input``.
    Schedule: three cuts, once 3, 17 and 22 of 32 layers have run or 3, 16 and 22 of 28; at other depths those of 32
    moved in proportion. Cut i hands floor(N (K/N)^(i/3)) tokens on, the last one K; the published shares (of LLaVA 1/2
    and 1/2, of Qwen2-VL 1/4 and 1/20, then a single token is left) are one choice for each model, which a budget K
    cannot express. Cuts that fall on one layer of a shallow model become one, and none is placed behind the last layer
    but one.
    Parity: official-algorithm. A cut chooses what the public code for LLaVA and Qwen2-VL chooses, after the same
    layers; how many tokens each hands on is ours. What DeepStack adds behind a layer counts as that layer's change.
    Degenerate input: equal variations keep the first tokens.
    """

    name: ClassVar[str] = "v2drop"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.input"})

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        depth = layers if layers in PUBLISHED_STAGES else 32
        counts: dict[int, int] = {}
        for stage, finished in enumerate(PUBLISHED_STAGES[depth], start=1):
            layer = max(0, min(round(layers * finished / depth) - 1, layers - 2))
            # The nudge keeps an exact power from being floored to one less.
            counts[layer] = max(k, int(n * (k / n) ** (stage / 3) + 1e-6))
        counts[layer] = k
        return counts

    def cut(self, state: LayerState, k: int) -> Selection:
        return Selection(anchors=top(variation(state.signals["lm.input"], state.hidden, state.image), k))
