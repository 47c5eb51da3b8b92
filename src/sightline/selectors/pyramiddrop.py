"""PyramidDrop: drop visual tokens in stages, more of them the deeper the layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sightline.core.selection import LayerSelector, LayerState, Parity, Ranges, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.fastv import attention_score
from sightline.selectors.scores import top


@SELECTORS.register("pyramiddrop")
@dataclass(frozen=True)
class PyramidDrop(LayerSelector):
    """Redundancy grows with depth, so the prefix shrinks stage by stage, guided by the last prompt token each time.

    Reference: "PyramidDrop: Accelerating Your Large Vision-Language Models via Pyramid Visual Redundancy Reduction"
    (CVPR 2025).

    Score: head mean of the last prompt token's attention, computed ahead of time from the hidden states that leave a
    stage with the query and key projections of the first layer of the next (``lm.next_attention_last``). Deletion
    after each stage, highest scores, ties to the lower index.
    Schedule: stage i of S = 3 ends once i / 4 of the layers have run (8, 16 and 24 of 32) and hands floor(N
    (K/N)^(i/S)) tokens on, the last one K; K = N/8 therefore gives the published 1/2, 1/4, 1/8. Stages that fall on
    one layer of a shallow model become one cut with the later count, and none is placed behind the last layer but
    one.
    Parity: exact-index for a stage's choice. The public code renumbers positions after a cut; the audit preserves
    them.
    Degenerate input: equal scores keep the first tokens.
    """

    name: ClassVar[str] = "pyramiddrop"
    parity: ClassVar[Parity] = "exact-index"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.next_attention_last"})
    ranges: ClassVar[Ranges] = {"stages": (1, 1_000)}

    stages: int = 3

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        counts: dict[int, int] = {}
        for stage in range(1, self.stages + 1):
            finished = round(layers * stage / (self.stages + 1))
            layer = max(0, min(finished - 1, layers - 2))
            # The nudge keeps an exact power (288 of 576, say) from being floored to 287.
            counts[layer] = max(k, int(n * (k / n) ** (stage / self.stages) + 1e-6))
        counts[layer] = k
        return counts

    def cut(self, state: LayerState, k: int) -> Selection:
        return Selection(anchors=top(attention_score(state.signals["lm.next_attention_last"], state.image), k))
