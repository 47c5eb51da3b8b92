"""Nothing is pruned: the image as it is, or shown smaller."""

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


@SELECTORS.register("resize")
@dataclass(frozen=True)
class Resize(Selector):
    """Prunes nothing: the image is shown smaller, so that the model itself makes no more tokens than the budget allows.

    What anybody can have without a pruning method, by asking the image processor for fewer pixels or fewer tiles, and
    the only arm that saves time in the vision tower as well. It covers all of the image at less detail: coverage is
    complete and says nothing about whether a word can still be read. K is the largest number of tokens within the
    budget that the image makes at any size with its proportions, so a square image has a square number of them.

    Reference: Liao et al., "Are We Using the Right Benchmark: An Evaluation Framework for Visual Token Compression
    Methods" (ACL 2026), which found downsampling ahead of many published methods.
    """

    name: ClassVar[str] = "resize"
    role: ClassVar[Role] = "control"
    resizes: ClassVar[bool] = True

    def count(self, probe_id: str, n: int, budget: Budget) -> int:
        """All n tokens of the smaller image: it has met the budget already."""
        return n

    def select(self, view: TokenView, k: int) -> Selection:
        n = view.cells.shape[0]
        if k != n:
            raise SightlineError(f"selector 'resize' keeps all {n} tokens of the image it is shown, not {k}")
        return Selection(torch.arange(n))
