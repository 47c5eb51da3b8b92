"""Nüwa, stage 2: half-way through the language model, keep what the last prompt token looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sightline.core.selection import LayerSelector, LayerState, Parity, Ranges, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.fastv import attention_score
from sightline.selectors.scores import top
from sightline.selectors.vscan_inside import half_way


@SELECTORS.register("nuwa_inside")
@dataclass(frozen=True)
class NuwaInside(LayerSelector):
    """What the question has gathered from the image half-way decides which visual tokens go on.

    Reference: "Nüwa: Mending the Spatial Integrity Torn by VLM Token Pruning" (2026), stage 2; stage 1, in the vision
    tower, is ``nuwa``.

    Score: head mean of the last prompt token's attention in the layer that just ran (``lm.attention_last``). Deletion,
    one cut, highest scores, ties to the lower index.
    Schedule: K tokens continue once half of the layers have run, 16 of 32 as published; in a shallow model the cut
    moves up to the last layer but one.
    Parity: exact-index for the choice, positions kept as in the public code. How many tokens its first stage leaves for
    it (112 for 64 on average, and so on) is not part of it: all of them are there.
    Degenerate input: equal scores keep the first tokens.
    """

    name: ClassVar[str] = "nuwa_inside"
    parity: ClassVar[Parity] = "exact-index"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.attention_last"})
    ranges: ClassVar[Ranges] = {"depth": (0.0, 1.0)}

    depth: float = 0.5
    """Part of the layers that see every token."""

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {half_way(layers, self.depth): k}

    def cut(self, state: LayerState, k: int) -> Selection:
        return Selection(anchors=top(attention_score(state.signals["lm.attention_last"], state.image), k))
