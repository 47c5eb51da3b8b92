from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from sightline.core.selection import Parity, QuerySpan, Selection, TokenView
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS


@SELECTORS.register("full")
@dataclass(frozen=True)
class Full:
    """Keeps every visual token: the unpruned reference.

    Asks for a budget of all tokens and refuses any other, so that a pruned row can never be mistaken for the reference.
    """

    name: ClassVar[str] = "full"
    query: ClassVar[QuerySpan] = "none"
    parity: ClassVar[Parity] = "exact-index"
    needs: ClassVar[frozenset[str]] = frozenset()
    salt: ClassVar[str] = "full"

    def budget(self, probe_id: str, n: int) -> int:
        return n

    def select(self, view: TokenView, k: int) -> Selection:
        n = view.cells.shape[0]
        if k != n:
            raise SightlineError(f"selector 'full' keeps all {n} visual tokens, not {k}; give it the budget 1.0")
        return Selection(torch.arange(n))
