from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sightline.core.selection import ByModel, Role, TokenView
from sightline.device.transfer import on_device
from sightline.selectors import SELECTORS
from sightline.selectors.scored import Scored, seeded
from sightline.selectors.scores import rank


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
