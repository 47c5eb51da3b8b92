from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sightline.core.selection import ByModel, Ranges, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.scored import TARGET_SCORE_MS, Scored, box_overlaps, fill, share


@SELECTORS.register("protected")
@dataclass(frozen=True)
class Protected(Scored):
    """Reserves part of the budget for tokens that overlap the boxes, then keeps the most relevant.

    Paper: Protected. At most round(reserve * K) tokens (at least one) are taken from the boxes in turn, each box
    offering its tokens by overlap fraction, then score; the rest of the budget goes by score. Without boxes this is
    Target.
    Parity: exact indices with the paper's artifact.
    """

    reserve: float = 0.5

    name: ClassVar[str] = "protected"
    ranges: ClassVar[Ranges] = {"reserve": (0.0, 1.0)}
    reads_boxes: ClassVar[bool] = True
    artifact: ClassVar[ByModel] = {"llava": {"score": "prompt"}}
    official_ms: ClassVar[float] = TARGET_SCORE_MS + 2.8

    def choose(self, scores: Tensor, view: TokenView, k: int) -> Tensor:
        limit = share(self.reserve, k, least=1)
        return fill(box_overlaps(view.cells, view.boxes, scores, limit), scores, k)
