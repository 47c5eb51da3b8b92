"""TransPrune: keep the visual tokens that layers transform most and that the text looks at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import LayerSelector, LayerState, Parity, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.scores import half_way, top

DEPTH = 32
WATCHED = range(7, 13)
"""Layers that have run when transitions are added up, of 32."""
DROPPED = {7: 1 / 7, 9: 3 / 7, 12: 1.0}
"""Layers that have run at a cut -> the part of N - K that is gone behind it: 7/8, 5/8 and 1/8 of N where K = N / 8."""
TINY = 1e-8


def transition(parts: Tensor) -> Tensor:
    """How much a layer turns and stretches each token, (L,), from what its parts read x and made y, (2, 2, L, D).

    Of the attention and of the feed-forward part each |y_i| / |x_i| * softmax_i(1 - cos(x_i, y_i)), over all positions;
    the sum of both.
    """
    read, made = parts.float().unbind(dim=1)
    stretched = made.norm(dim=-1) / read.norm(dim=-1)
    turned = 1.0 - torch.nn.functional.cosine_similarity(read, made, dim=-1)
    weights: Tensor = stretched * turned.softmax(dim=-1)
    return weights.nan_to_num(0.0).sum(dim=0)


def text_attention(attention: Tensor, image: Tensor) -> Tensor:
    """(n,) mean over heads and over the text behind the image of what each visual token gets of (H, L, L) attention."""
    behind = min(int(image[-1]) + 1, attention.shape[1] - 1)
    return attention[:, behind:].float().mean(dim=(0, 1))[image.to(attention.device)]


@SELECTORS.register("transprune")
@dataclass(frozen=True)
class TransPrune(LayerSelector):
    """What layers change most in length and direction carries meaning; with the text's attention it says what stays.

    Reference: Li et al., "TransPrune: Token Transition Pruning for Efficient Large Vision-Language Model" (CVPR 2026).

    Score: transitions (``transition``) added up over layers 7 to 12 of 32, as far as they have run, plus the attention
    that the text behind the image would pay in the next layer (``text_attention``), each divided by its sum. Deletion
    after 7, 9 and 12 layers, highest scores, ties to the lower index.
    Schedule: of the N - K tokens that go, 1/7, 3/7 and all are gone behind the three cuts, which are the published 7/8,
    5/8 and 1/8 of N where K = N / 8. Other depths are cut in proportion, none behind the last layer but one; what falls
    on one layer of a shallow model is one cut with the later count.
    Costs: reads the parts of six layers and the attention of three; here these layers are run once more for that, in
    the public code they hand it out on the way.
    Parity: exact-index for a cut's choice and for the published schedule. The public code renumbers positions after a
    cut; the audit preserves them.
    Degenerate input: a token that a part reads as zero has no transition there; without text behind the image its last
    position looks; equal scores keep the first tokens.
    """

    name: ClassVar[str] = "transprune"
    parity: ClassVar[Parity] = "exact-index"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.parts", "lm.next_attention"})

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        counts, left = dict[int, int](), n
        for finished in WATCHED:
            # The nudge keeps a whole number from being rounded down to one less.
            left = min(left, int(n - (n - k) * DROPPED[finished] + 1e-6)) if finished in DROPPED else left
            counts[half_way(layers, finished / DEPTH)] = left
        return counts

    def look(self, state: LayerState) -> None:
        """Adds this layer's transitions to those noted so far, (N,) by the token that each was at the start."""
        noted = transition(state.signals["lm.parts"])[state.image.to(state.hidden.device)]
        n = sum(rows * columns for rows, columns in state.layout)
        total = state.memory.get("transition", torch.zeros(n, device=noted.device))
        state.memory["transition"] = total.index_add(0, state.source.to(noted.device), noted)

    def cut(self, state: LayerState, k: int) -> Selection:
        self.look(state)
        moved = state.memory["transition"][state.source.to(state.hidden.device)]
        attended = text_attention(state.signals["lm.next_attention"], state.image)
        return Selection(anchors=top(moved / (moved.sum() + TINY) + attended / (attended.sum() + TINY), k))
