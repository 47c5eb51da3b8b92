from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from sightline.core.selection import Budget, Parity, Role, Selection, Selector, TokenView
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS


@SELECTORS.register("full")
@dataclass(frozen=True)
class Full(Selector):
    """Keeps every visual token: the unpruned reference.

    Asks for a budget of all tokens and refuses any other, so that a pruned row can never be mistaken for the reference.
    """

    name: ClassVar[str] = "full"
    parity: ClassVar[Parity] = "exact-index"
    role: ClassVar[Role] = "reference"
    needs_budget: ClassVar[bool] = False

    def count(self, probe_id: str, n: int, budget: Budget) -> int:
        return n

    def select(self, view: TokenView, k: int) -> Selection:
        n = view.cells.shape[0]
        if k != n:
            raise SightlineError(f"selector 'full' keeps all {n} visual tokens, not {k}; give it the budget 1.0")
        return Selection(torch.arange(n))
