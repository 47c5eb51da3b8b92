"""SGL: the attention of all layers together says which tokens a second reading needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sightline.core.selection import LayerSelector, LayerState, Parity, Ranges, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.scores import top


@SELECTORS.register("sgl")
@dataclass(frozen=True)
class SGL(LayerSelector):
    """One layer's attention misleads, that of all layers does not: a first reading tells what the second keeps.

    Reference: Zhao et al., "A Stitch in Time Saves Nine: Small VLM is a Precise Guidance for Accelerating Large VLMs"
    (CVPR 2025), with the model itself as its guide.

    Guidance: attention to each visual token, sum over all layers, heads and positions from the last visual token on, of
    the uncut prompt. Deletion, one cut, highest sums, ties to the lower index.
    Schedule: K tokens continue once int(``depth`` layers) have run; published are 0.4 for InternVL2-26B guided by
    InternVL2-2B, and other parts down to 0.1. In a shallow model the cut moves up to the last layer but one.
    Costs: reads the whole prompt once more, and attention of every layer of it: dearer than no pruning at all. The time
    is billed as signals. It says how good the guidance can get; what it saves is for a smaller guide.
    Parity: official-algorithm. The choice is the public code's, and so is the guidance of a prompt. There the guide is
    a smaller checkpoint of the same family (its kept tokens can be replayed by ``masks``), it also adds up the
    attention of the answer that it writes, and its answer is taken where it is sure enough (early exit).
    Degenerate input: equal sums keep the first tokens.
    """

    name: ClassVar[str] = "sgl"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.attention"})
    rehearses: ClassVar[bool] = True
    ranges: ClassVar[Ranges] = {"depth": (0.0, 1.0)}

    depth: float = 0.4
    """Part of the layers that see every token."""

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {max(0, min(int(layers * self.depth) - 1, layers - 2)): k}

    def look(self, state: LayerState) -> None:
        attention = state.signals["lm.attention"][:, int(state.image[-1]) :]
        paid = attention.index_select(2, state.image.to(attention.device)).float().sum(dim=(0, 1))
        state.memory["guidance"] = state.memory.get("guidance", 0.0) + paid

    def cut(self, state: LayerState, k: int) -> Selection:
        guidance = state.memory.get("guidance")
        if guidance is None:  # asked about a single layer, outside of a reading
            self.look(state)
            guidance = state.memory["guidance"]
        return Selection(anchors=top(guidance[state.source.to(guidance.device)], k))
