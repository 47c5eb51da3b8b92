from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sightline.core.selection import Parity, Role, Selection, Selector, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.scored import on_cpu
from sightline.selectors.scores import centres, order


@SELECTORS.register("center")
@dataclass(frozen=True)
class Center(Selector):
    """Keeps the tokens nearest to the middle of the image.

    A control for centre bias: squared distance of the cell's centre to (0.5, 0.5), ties to the lower index.
    Parity: exact indices with the paper's artifact.
    """

    name: ClassVar[str] = "center"
    parity: ClassVar[Parity] = "exact-index"
    role: ClassVar[Role] = "control"

    def select(self, view: TokenView, k: int) -> Selection:
        x, y = centres(on_cpu(view).cells)
        distance = (x - 0.5) * (x - 0.5) + (y - 0.5) * (y - 0.5)
        return Selection(order(distance)[:k].sort().values)
