"""Controls that look at no evidence: a draw, scores dealt to the wrong tokens, the middle, the lowest scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import ByModel, Parity, Role, Selection, Selector, TokenView
from sightline.device.work import on_device
from sightline.selectors import SELECTORS
from sightline.selectors.scores import Scored, centres, on_cpu, order, rank, seeded


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


@SELECTORS.register("shuffled")
@dataclass(frozen=True)
class Shuffled(Scored):
    """Keeps what Target would keep if its scores were dealt to the wrong tokens.

    Paper: Shuffled. The scores are permuted by the seeded generator before the top K are taken: same score
    distribution, no relation to the place.
    Parity: exact indices with the paper's artifact.
    """

    seed: int = 17

    name: ClassVar[str] = "shuffled"
    rule_on_device: ClassVar[bool] = True
    role: ClassVar[Role] = "control"
    artifact: ClassVar[ByModel] = {"llava": {"score": "prompt"}}

    @property
    def salt(self) -> str:
        """The published masks were drawn under these names."""
        published = {"target": "target_embed_", "prompt": "embed_", "overlap": ""}
        return published.get(self.score, f"{self.score}_embed_") + "shuffled_topk"

    def choose(self, scores: Tensor, view: TokenView, k: int) -> Tensor:
        dealt = list(range(scores.shape[0]))
        seeded(self.seed, view.key).shuffle(dealt)
        return rank(scores[on_device(dealt, scores.device)])[:k]


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
