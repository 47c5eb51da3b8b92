from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sightline.core.selection import TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.scored import TARGET_SCORE_MS, Scored, box_centres, fill


@SELECTORS.register("center_protected")
@dataclass(frozen=True)
class CenterProtected(Scored):
    """Reserves one token per box, the one nearest to its centre, then keeps the most relevant.

    Paper: Center-protected. Boxes are served in order, the first K if there are more; without boxes this is Target.
    Parity: exact indices with the paper's artifact.
    """

    name: ClassVar[str] = "center_protected"
    reads_boxes: ClassVar[bool] = True
    official_ms: ClassVar[float] = TARGET_SCORE_MS + 2.8

    def choose(self, scores: Tensor, view: TokenView, k: int) -> Tensor:
        return fill(box_centres(view.cells, view.boxes, scores, k), scores, k)
