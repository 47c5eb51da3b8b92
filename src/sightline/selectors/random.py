from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from sightline.core.selection import Parity, Role, Selection, Selector, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.scored import seeded


@SELECTORS.register("random")
@dataclass(frozen=True)
class Random(Selector):
    """Keeps tokens drawn uniformly: the control that every method has to beat.

    Paper: Random. K of N without replacement by a Mersenne Twister seeded from (seed, probe, view, budget, salt);
    the two probes of one image get different masks.
    Parity: exact indices with the paper's artifact.
    """

    seed: int = 17
    salt: str = "random"

    name: ClassVar[str] = "random"
    parity: ClassVar[Parity] = "exact-index"
    role: ClassVar[Role] = "control"
    official_ms: ClassVar[float] = 0.1

    def select(self, view: TokenView, k: int) -> Selection:
        drawn = seeded(self.seed, view.key).sample(range(view.cells.shape[0]), k)
        return Selection(torch.tensor(sorted(drawn), dtype=torch.long))
