"""FastV: keep the visual tokens that the last prompt token looks at."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from torch import Tensor

from sightline.core.selection import LayerSelector, LayerState, Parity, Ranges, Selection
from sightline.device.work import on_device
from sightline.selectors import SELECTORS
from sightline.selectors.scores import top


def attention_score(attention_last: Tensor, image: Tensor) -> Tensor:
    """Head mean of the last prompt token's attention, at the visual positions.

    attention_last (..., H, L), image (n,) -> (..., n), at least float32: score_i = (1 / H) * sum_h attention[h,
    image_i].
    """
    seen = attention_last.index_select(-1, on_device(image, attention_last.device))
    return (seen if seen.dtype.itemsize >= 4 else seen.float()).mean(dim=-2)


@SELECTORS.register("fastv")
@dataclass(frozen=True)
class FastV(LayerSelector):
    """Early attention already tells which visual tokens the answer will use; the others are deleted.

    Reference: "An Image is Worth 1/2 Tokens After Layer 2: Plug-and-Play Inference Acceleration for Large
    Vision-Language Models" (ECCV 2024).

    Score: head mean of the last prompt token's attention row. Deletion, one cut, K highest scores, ties to the lower
    index.
    Schedule: layers 0 .. ``fastv_k`` - 1 run on the full sequence, K tokens continue past layer ``fastv_k`` - 1. In a
    shallow model the cut moves up to the last layer but one, so that at least one layer runs shortened.
    Parity: exact-index. The query is the last *prompt* token; nothing of the scored continuation is looked at.
    Degenerate input: equal scores (a row that ignores the image, for instance) keep the first K tokens.
    """

    name: ClassVar[str] = "fastv"
    parity: ClassVar[Parity] = "exact-index"
    ranges: ClassVar[Ranges] = {"fastv_k": (1, inf)}
    needs: ClassVar[frozenset[str]] = frozenset({"lm.attention_last"})
    official_ms: ClassVar[float] = 7.0

    fastv_k: int = 3
    """Number of layers that see every token: 3 in the audit and the public demo, 2 in the paper."""

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {max(0, min(self.fastv_k - 1, layers - 2)): k}

    def cut(self, state: LayerState, k: int) -> Selection:
        return Selection(anchors=top(attention_score(state.signals["lm.attention_last"], state.image), k))
