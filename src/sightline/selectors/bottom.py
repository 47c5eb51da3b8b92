from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sightline.core.selection import Role, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.scored import Scored
from sightline.selectors.scores import order


@SELECTORS.register("bottom")
@dataclass(frozen=True)
class Bottom(Scored):
    """Keeps the tokens least relevant to the queried string: Target turned upside down.

    A control: the K smallest scores, ties to the lower index.
    Parity: exact indices with the paper's artifact.
    """

    name: ClassVar[str] = "bottom"
    rule_on_device: ClassVar[bool] = True
    role: ClassVar[Role] = "control"

    def choose(self, scores: Tensor, view: TokenView, k: int) -> Tensor:
        return order(scores)[:k]
