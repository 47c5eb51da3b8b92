"""VScan, stage 2: half-way through the language model, keep what the last prompt token is about to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sightline.core.selection import LayerSelector, LayerState, Parity, Ranges, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.fastv import attention_score
from sightline.selectors.scores import top


def half_way(layers: int, depth: float) -> int:
    """The layer after which a cut falls once ``depth`` of the layers have run; never behind the last but one."""
    return max(0, min(round(layers * depth) - 1, layers - 2))


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
