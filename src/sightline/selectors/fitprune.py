"""FitPrune: at every layer delete the visual tokens that neither the image nor the text attends to."""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sightline.core.selection import LayerSelector, LayerState, Parity, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.scores import top

REFERENCE_TOKENS = 576
DELETED_PER_LAYER: dict[int, tuple[int, ...]] = {
    0: (0,) * 32,
    10: (0, 0, 1, 2, 1, 0, 1, 4, 5, 5, 11, 4, 2, 2, 0, 0, 1, 1, 2, 4, 2, 10, 1, 1, 1, 2, 1, 1, 0, 1, 0, 0),
    20: (0, 0, 3, 3, 1, 1, 4, 16, 14, 15, 24, 4, 2, 3, 2, 0, 6, 0, 5, 13, 4, 19, 2, 1, 1, 1, 1, 1, 2, 1, 0, 0),
    30: (0, 0, 7, 6, 4, 5, 16, 40, 24, 21, 24, 4, 2, 3, 4, 0, 16, 0, 11, 26, 6, 32, 3, 1, 0, 1, 2, 2, 4, 0, 0, 0),
    40: (0, 1, 21, 13, 14, 11, 41, 53, 29, 15, 14, 5, 1, 4, 5, 1, 26, 1, 13, 28, 6, 27, 2, 1, 0, 0, 1, 1, 2, 0, 0, 0),
    50: (3, 7, 49, 24, 29, 17, 59, 41, 26, 8, 10, 6, 2, 5, 7, 2, 30, 3, 13, 27, 5, 23, 2, 1, 0, 0, 1, 1, 2, 0, 0, 0),
    55: (6, 17, 69, 31, 34, 19, 59, 30, 23, 6, 8, 7, 2, 5, 8, 2, 29, 4, 12, 25, 4, 19, 2, 1, 0, 0, 1, 0, 1, 0, 0, 0),
    60: (14, 33, 89, 36, 36, 20, 55, 21, 18, 4, 7, 5, 2, 5, 7, 4, 26, 5, 11, 24, 4, 18, 2, 1, 0, 0, 1, 0, 1, 0, 0, 0),
    70: (48, 79, 118, 41, 33, 17, 36, 9, 9, 2, 3, 2, 1, 3, 4, 8, 18, 7, 8, 20, 4, 13, 2, 1, 0, 0, 1, 0, 1, 0, 0, 0),
    80: (128, 127, 118, 35, 26, 8, 13, 3, 2, 1, 0, 0, 0, 2, 1, 8, 7, 8, 5, 11, 2, 6, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0),
    90: (262, 153, 80, 19, 13, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 1, 2, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0),
}
"""Reduction of computation in percent -> visual tokens deleted after each layer, as published for LLaVA-1.5-7B."""


def two_sided_attention(attention: Tensor, image: Tensor) -> Tensor:
    """How much the image itself and the text behind it attend to each visual token.

    attention (..., H, L, L) [query, key], image (n,) -> (..., n) float32. With a = max over heads,
    score_i = (1 / n) * sum_{j in image} a[j, i] * sum_{t behind the image} a[t, i].
    """
    start, behind = int(image[0]), int(image[-1]) + 1
    image = image.to(attention.device)
    strongest = attention[..., start:, :].amax(dim=-3).index_select(-1, image).float()
    by_image = strongest.index_select(-2, image - start).sum(dim=-2) / image.shape[0]
    by_text = strongest[..., behind - start :, :]
    return by_image * by_text.sum(dim=-2) if by_text.shape[-2] else by_image


def deletion_curve(n: int, k: int) -> list[float]:
    """Visual tokens deleted up to each boundary between the 32 published layers, 33 values from 0 to n - k.

    Linear interpolation between the two published curves whose ends lie around the wanted reduction; past the
    strongest one its shape is stretched towards deleting everything. A published end, at n = 576, gives its own curve
    back.
    """
    published = list(DELETED_PER_LAYER.values())
    strongest = published[-1]
    curves = [*published, tuple(REFERENCE_TOKENS * count / sum(strongest) for count in strongest)]
    ends = [sum(curve) for curve in curves]
    wanted = REFERENCE_TOKENS * (n - k) / n
    upper = max(1, bisect.bisect_left(ends, wanted))
    blend = (wanted - ends[upper - 1]) / (ends[upper] - ends[upper - 1])
    deleted = ((1.0 - blend) * a + blend * b for a, b in zip(curves[upper - 1], curves[upper], strict=True))
    return [total * n / REFERENCE_TOKENS for total in itertools.accumulate(deleted, initial=0.0)]


@SELECTORS.register("fitprune")
@dataclass(frozen=True)
class FitPrune(LayerSelector):
    """Deletes a little at every layer, by attention received, after a recipe fitted to keep attention as it was.

    Reference: "Fit and Prune: Fast and Training-free Visual Token Pruning for Multi-modal Large Language Models"
    (AAAI 2025).

    Score: attention maximum over heads, mass received from the visual queries times mass received from the text
    behind the image. Deletion of the lowest scores, ties delete the higher index. Needs ``lm.attention``. The public
    code deletes between attention and the feed-forward block of a layer; the block treats tokens one by one, so what
    survives is the same.
    Schedule: the per-layer counts published for LLaVA-1.5-7B (32 layers, 576 tokens) whenever K is one of their ends
    (510, 427, 312, 240, 173, 152, 127, 88, 62, 37). Otherwise the two neighbouring curves are interpolated, scaled to
    N and, for another depth, read at the same fraction of the depth; the last layer but one hands K tokens on at the
    latest.
    Parity: exact-index for a layer's choice and for the published schedules.
    Degenerate input: without text behind the image the visual factor decides alone; equal scores keep the first
    tokens.
    """

    name: ClassVar[str] = "fitprune"
    parity: ClassVar[Parity] = "exact-index"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.attention"})
    official_ms: ClassVar[float] = 35.0

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        curve = deletion_curve(n, k)
        counts: dict[int, int] = {}
        left = n
        for layer in range(max(1, layers - 1)):
            whole, part = divmod((layer + 1) * (len(curve) - 1) / layers, 1.0)
            below = int(whole)
            deleted = curve[below] + part * (curve[min(below + 1, len(curve) - 1)] - curve[below])
            remaining = k if layer >= layers - 2 else n - round(deleted)
            if remaining < left:
                counts[layer] = left = remaining
        return counts or {0: k}

    def cut(self, state: LayerState, k: int) -> Selection:
        return Selection(anchors=top(two_sided_attention(state.signals["lm.attention"], state.image), k))
